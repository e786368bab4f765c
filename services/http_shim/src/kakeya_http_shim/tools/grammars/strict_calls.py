"""Answers that may call: free text, but for calls, which are held to their tools' schemas from their trigger on.

A trigger is what makes a call of what follows it, where `ToolCallParser` reads one: a family's mark, be it a token or
spelled by letters; a function's name in a tag; under `llama`, which writes calls without any mark, too, the beginning
of an object or a list with a tool's name.

Text is any bytes, and any of the tokens that are no text: without a trigger an answer is what it is without a grammar.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kakeya_http_shim.tools.grammars import lark, llama_calls
from kakeya_http_shim.tools.grammars.lark import AddedId, HeldTool, Spacing
from kakeya_http_shim.tools.grammars.marked_calls import MARKED

_SPACING = Spacing.FREE
_HEAD = (
    '%llguidance {"allow_invalid_utf8": true}',
    # Before the names of tokens that are no text stands 0xFF, which no text has.
    r"TEXT: /[\x00-\xfe]*/",
)
_LLAMA_TERMINALS = (
    r"LINE_START: /([\x00-\xfe]*\n)?[ \t\r]*/",
    r'NAME_KEY: /\{\s*("type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*/',
    r'ARGUMENTS_KEY: /\s*,\s*"(parameters|arguments)"\s*:/',
    r"LIST: /\[\s*/",
    r"SPACE: /\s{0,4}/",
)


@dataclass(frozen=True, slots=True)
class _Calls:
    """What the calls of an answer look like among its text.

    Attributes:
        openers: marks that open calls.
        called: rules of calls, from their trigger on, behind which text goes on.
        last: those of calls that end the answer.
    """

    openers: Sequence[str]
    called: Sequence[str]
    last: Sequence[str]
    rules: Sequence[str]


def grammar(
    family: str, tools: Sequence[HeldTool], added_id: AddedId, textless: Collection[int], *, is_single: bool
) -> str:
    """Text with any number of calls.

    Args:
        family: in `families.SYNTAXES`.
        tools: all that are offered; those that are not strict are free in their arguments.
        textless: ids of tokens that are no text, or may be none.
        is_single: the answer ends with its first call.

    Raises:
        KeyError: there is no such family.
    """
    calls = _llama(tools, added_id, is_single) if family == "llama" else _marked(family, tools, added_id, is_single)
    ids = [token_id for token_id in map(added_id, calls.openers) if token_id is not None]
    rules = [
        f"called: {lark.either(calls.called)}",
        f"opened: {lark.either([*(f'TEXT {mark}' for mark in [lark.tokens(ids)] if mark), 'spelled'])}",
        f"spelled[lazy]: TEXT ({lark.either(map(lark.text, calls.openers))})",
        *calls.rules,
    ]
    among, ends = ["called"], ["TEXT", *calls.last]
    if is_single:
        among, ends = [], ["TEXT", "called", *calls.last]
    if others := lark.tokens({*textless}.difference(ids)):
        among.append("other")
        rules.append(f"other: TEXT {others}")
    start = f"({lark.either(among)})* ({lark.either(ends)})" if among else f"{lark.either(ends)}"
    return lark.grammar(start, rules, head=_HEAD)


def _marked(family: str, tools: Sequence[HeldTool], added_id: AddedId, is_single: bool) -> _Calls:
    written = MARKED[family](tools, added_id, _SPACING)
    called, rules = [f"opened {written.behind_opener(is_single)}"], [*written.rules]
    for number, (begins, rule) in enumerate(written.bare.items()):
        called.append(f"bare_{number} {rule}")
        rules.append(f"bare_{number}[lazy]: TEXT {lark.text(begins)}")
    return _Calls([written.opener], called, [], rules)


def _llama(tools: Sequence[HeldTool], added_id: AddedId, is_single: bool) -> _Calls:
    """Behind calls without a mark, and those whose mark is not closed, nothing comes: else they would be none."""
    listed = [tool for tool in tools if llama_calls.has_list(tool)]
    more = "" if is_single else f"({llama_calls.BETWEEN[_SPACING]} call)*"
    rest = f"{'' if is_single else f'({_SPACING.row(chr(44))} named)*'} {_SPACING.row(']')}"
    rules = [*_LLAMA_TERMINALS, *llama_calls.objects(tools, _SPACING)]
    forms, last = [f"call {more}"], ["marked"]
    for tool in tools:
        rules.append(f"object_{tool.index}[lazy]: LINE_START NAME_KEY {lark.text(lark.text(tool.name))} ARGUMENTS_KEY")
        last.append(f"object_{tool.index} SPACE behind_{tool.index} {more}")
    if listed:
        rules += llama_calls.lists(listed, _SPACING)
        forms.append(f"{_SPACING.row('[')} named {rest}")
    for tool in listed:
        rules.append(f"list_{tool.index}[lazy]: LINE_START LIST {lark.text(tool.name + '(')}")
        last.append(f"list_{tool.index} SPACE given_{tool.index} {rest}")
    rules.append(f"marked: opened ({lark.either(forms)})")
    return _Calls(llama_calls.MARKS, [f"marked {lark.mark(llama_calls.CLOSES, added_id)}"], last, rules)
