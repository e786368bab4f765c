"""What operations could make of small values, told before they do it: the library's own code cannot be stopped."""

import re
from collections.abc import Mapping
from typing import Any

from kakeya.text.rendering import budget
from kakeya.text.rendering.budget import OverBudget

_PADDING = frozenset({"center", "ljust", "rjust", "zfill", "batch", "slice", "round", "to_bytes"})
"""A number that they are given may be the length of what they make."""
_SLOW = frozenset({"pprint", "striptags", "title", "urlencode", "urlize", "wordwrap", "xmlattr"})
_MAX_SLOW_LETTERS = 1 << 16
"""Far more than a template has reason to do that with; they take a microsecond a letter or more."""
_MAX_LAYOUT_LETTERS = 32  # of what JSON is laid out with; it comes in front of each item
_WIDE_FIELD = re.compile(r"\{[^{}]*(\{|\d{5})")
_WIDE_DIRECTIVE = re.compile(r"%(\(.*?\))?[-+ #0]*(\*|\d{5}|\d*\.(\*|\d{5}))", re.DOTALL)


def checked(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of a function, filter or method, which knows its own text as the first; what runs once is a list.

    Raises:
        OverBudget: what it would make of them is too large.
    """
    values = (*args, *kwargs.values())
    if name == "join":
        args = tuple(each if _is_plain(each) else budget.current().made(_listed(each)) for each in args)
        _check_join((*args, *kwargs.values()))
    elif name == "replace":
        _check_replace([value for value in values if isinstance(value, str)])
    elif name == "indent":
        _check_indent(values)
    elif name in _PADDING:
        for value in values:
            if isinstance(value, int):
                budget.current().check_letters(abs(value))
    elif name in _SLOW and sum(map(budget.current().weight, values)) > _MAX_SLOW_LETTERS:
        raise OverBudget(f"it does `{name}` with more than {_MAX_SLOW_LETTERS:,} letters")
    elif name == "format":  # the filter; the method knows no text of its own here
        check_operator("%", args[0], values[1:])
    elif name == "sum" and not all(isinstance(value, int | float) for value in _start_of_sum(args, kwargs)):
        raise OverBudget("it adds up what are no numbers")
    return args


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Raises OverBudget where the result would be too large."""
    if operator == "%" and isinstance(left, str):
        if _WIDE_DIRECTIVE.search(left):
            raise OverBudget("it makes a field of ten thousand letters or more")
        budget.current().check_letters(len(left) + left.count("%") * budget.current().weight(right))
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        budget.current().check_bits(left.bit_length() * abs(right))
    elif operator == "*":
        for many, times in ((left, right), (right, left)):
            if isinstance(many, str | list | tuple) and isinstance(times, int):
                budget.current().check_letters(len(many) * times)


def check_format(text: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raises OverBudget where a text with its fields filled would be too long, as far as can be told before."""
    if _WIDE_FIELD.search(text):  # which may be as wide as another one says
        raise OverBudget("it makes a field of ten thousand letters or more")
    given = budget.current().weight((*args, *kwargs.values()))
    budget.current().check_letters(len(text) + text.count("{") * given)


def check_layout(indent: Any, separators: Any) -> None:
    """Raises OverBudget where JSON would be laid out with long texts."""
    lengths = [indent if isinstance(indent, int) else len(indent or "")]
    if max(*lengths, *(len(each) for each in separators or ("",))) > _MAX_LAYOUT_LETTERS:
        raise OverBudget(f"it lays out JSON with more than {_MAX_LAYOUT_LETTERS} letters at each place")


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | list | tuple | dict) or not hasattr(value, "__iter__")


def _listed(items: Any) -> list[Any]:
    return list(budget.current().counted(items))


def _check_join(values: tuple[Any, ...]) -> None:
    separator = max((len(value) for value in values if isinstance(value, str)), default=0)
    for value in values:
        if isinstance(value, list | tuple | dict):
            budget.current().check_letters(separator * len(value) + budget.current().weight(value))
        elif isinstance(value, str):
            budget.current().check_letters(separator * len(value))


def _check_replace(texts: list[str]) -> None:
    if len(texts) >= 3:
        text, old, new = texts[:3]
        num_found = text.count(old) if len(new) > len(old) else 0
        budget.current().check_letters(len(text) + num_found * (len(new) - len(old)))


def _check_indent(values: tuple[Any, ...]) -> None:
    texts = [value for value in values if isinstance(value, str)]
    widths = [value if isinstance(value, int) else len(value) for value in values[1:] if isinstance(value, int | str)]
    num_lines = 1 + max((len(text.splitlines()) for text in texts), default=0)
    budget.current().check_letters(num_lines * max(widths, default=0))


def _start_of_sum(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Of what it is given besides the environment, the items, and the attribute: what it starts from."""
    return (*args[3:], *(value for name, value in kwargs.items() if name == "start"))
