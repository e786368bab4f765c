"""Flags that each have an environment variable: a flag wins over its variable, a variable over the default."""

from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping, Sequence
from math import inf, nan
from typing import Any, Self


class VariableFlags:
    """Adds flags to a parser.

    A variable is read where its flag is not given: a wrong one is then a usage error that names it.

    Args:
        parser: gets them.
        prefix: of the variables; `--max-tokens` is PREFIX + "MAX_TOKENS".
        environment: where variables are looked up.
    """

    def __init__(self, parser: ArgumentParser, prefix: str, environment: Mapping[str, str]) -> None:
        self._parser = parser
        self._prefix = prefix
        self._environment = environment

    def add(
        self,
        name: str,
        default: Any,
        help: str,
        *,
        type: Callable[[str], Any] = str,
        choices: Sequence[Any] | None = None,
        **options: Any,
    ) -> None:
        """A flag with a value. What `options` are, argparse says; a variable is held to type and choices, too."""
        variable = self._variable(name)
        says = "" if default is None else f". Default {default}"
        self._parser.add_argument(
            f"--{name}",
            default=self._text(variable) or default,
            type=_reader(type, choices),
            choices=choices,
            help=_literal(f"{help}{says} [{variable}]"),
            **options,
        )

    def switch(self, name: str, help: str, *further_variables: str) -> None:
        """A flag without a value, off unless a variable is set."""
        variables = (self._variable(name), *further_variables)
        self._parser.add_argument(
            f"--{name}",
            action="store_true",
            default=any(self._environment.get(variable) for variable in variables),
            help=_literal(f"{help} [{', '.join(variables)}]"),
        )

    def add_repeated(self, name: str, help: str, *, choices: Sequence[str]) -> None:
        """A flag that may be given several times; in the variable the values stand between commas."""
        variable = self._variable(name)
        self._parser.add_argument(
            f"--{name}",
            action=_Repeated,
            default=self._text(variable) or [],
            type=_list_reader(choices),
            choices=choices,
            help=_literal(f"{help}; may be repeated, in the variable with commas [{variable}]"),
        )

    def _variable(self, name: str) -> str:
        return self._prefix + name.upper().replace("-", "_")

    def _text(self, variable: str) -> "_VariableText":
        return _VariableText(self._environment.get(variable, ""), variable)


class _VariableText(str):
    """What a variable says. As a flag's default, argparse gives it to the flag's type where the flag is not given."""

    variable: str

    def __new__(cls, text: str, variable: str) -> Self:
        self = super().__new__(cls, text)
        self.variable = variable
        return self


class _Repeated(Action):
    """Gathers what is given; the first that is takes the place of the default."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, value: Any, option_string: Any = None) -> None:
        given = getattr(namespace, self.dest)
        setattr(namespace, self.dest, [value] if given is self.default else [*given, value])


def _reader(kind: Callable[[str], Any], choices: Sequence[Any] | None) -> Callable[[str], Any]:
    """A type of flags that also holds a variable to the choices, which argparse does not, and names it."""

    def read(text: str) -> Any:
        if not isinstance(text, _VariableText):
            return kind(text)
        try:
            value = kind(text)
        except (ArgumentTypeError, ValueError) as error:
            raise ArgumentTypeError(f"{text.variable}: {error}") from error
        if choices is not None and value not in choices:
            raise ArgumentTypeError(f"{text.variable}: {value!r} is none of {', '.join(map(str, choices))}")
        return value

    read.__name__ = getattr(kind, "__name__", repr(kind))  # argparse says it: invalid float value
    return read


def _list_reader(choices: Sequence[str]) -> Callable[[str], Any]:
    """A type of flags: one value of a flag, all values of a variable."""
    one = _reader(str, choices)

    def read(text: str) -> Any:
        if not isinstance(text, _VariableText):
            return text
        return [one(_VariableText(part.strip(), text.variable)) for part in text.split(",") if part.strip()]

    return read


def _literal(help: str) -> str:
    """As it is to be read: argparse would fill in what stands after a percent sign."""
    return help.replace("%", "%%")


def whole_number(least: int) -> Callable[[str], int]:
    """A type of flags: a whole number that is at least so large."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return parse


def seconds(text: str) -> float:
    """A type of flags: a finite time that is not negative."""
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not 0 <= value < inf:
        raise ArgumentTypeError(f"{text!r} is no number of seconds from 0 on")
    return value
