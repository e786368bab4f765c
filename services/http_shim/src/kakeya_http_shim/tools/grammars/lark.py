"""Pieces of llguidance's form of Lark (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md)."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Any

AddedId = Callable[[str], int | None]
"""The token that was added to the vocabulary and is written so; None where there is none, and its letters are said."""

_DEFINITIONS = ("$defs", "definitions")
_JSON_RULE = "%json "
_SCALARS = ("string", "integer", "number", "boolean", "null")
"""Within these is no white space that is none of the value."""
_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


_MAX_SPACE = r"\s{0,4}"
_PARTS = re.compile(r'"[^"]*"|[^\s"]')


class Spacing(Enum):
    """White space in a call that is JSON."""

    WRITTEN = "as in what models learn from, and no more, which a small one does not end"
    FREE = "as a model writes it, within reason"

    def row(self, written: str) -> str:
        """A rule of this text, between whose texts and signs white space may be."""
        if self is Spacing.WRITTEN:
            return text(written)
        return f"/{_MAX_SPACE.join(['', *map(re.escape, _PARTS.findall(written)), ''])}/"

    @property
    def style(self) -> dict[str, Any]:
        """The same for the library, in a schema."""
        if self is Spacing.WRITTEN:
            said: dict[str, Any] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
        else:
            said = {"whitespace_pattern": r"[ ]|\n[ ]{0,20}"}
        return {"x-guidance": said}


@dataclass(frozen=True, slots=True)
class HeldTool:
    """A tool, and whether a grammar holds its arguments.

    Attributes:
        index: its place among the request's tools; rules have it in their names.
        schema: of its arguments; empty where it has none.
        is_strict: they are held to it; else they are any JSON object.
    """

    index: int
    name: str
    schema: Mapping[str, Any]
    is_strict: bool = True


def text(said: str) -> str:
    """A text in Lark's notation, which is JSON's."""
    return json.dumps(said, ensure_ascii=False)


def mark(said: str, added_id: AddedId) -> str:
    """A mark around calls: a token, where it is one."""
    token_id = added_id(said)
    return text(said) if token_id is None else f"<[{token_id}]>"


def tokens(token_ids: Iterable[int]) -> str:
    """Any of these tokens; "" of none."""
    runs = [
        [each for _, each in run] for _, run in groupby(enumerate(sorted(set(token_ids))), lambda at: at[1] - at[0])
    ]
    return f"<[{','.join(f'{run[0]}-{run[-1]}' for run in runs)}]>" if runs else ""


def either(rules: Iterable[str]) -> str:
    """One of them."""
    return " | ".join(rules)


def arguments(tool: HeldTool, spacing: Spacing) -> str:
    """The rule `args_INDEX`: a call's arguments in JSON, which are an object, whatever the schema leaves out.

    A rule of its own, in a line of its own: a schema's references are within it, and errors name the line.
    """
    schema = _NO_ARGUMENTS
    if tool.schema or not tool.is_strict:
        schema = {"type": "object", **(tool.schema if tool.is_strict else {})}
    return f"args_{tool.index}: {_JSON_RULE}{_json({**spacing.style, **schema})}"


def value(rule: str, schema: Any, root: Mapping[str, Any], spacing: Spacing) -> str:
    """A rule: a value in JSON. Args: `root`: has what the schema refers to."""
    if isinstance(schema, Mapping):
        refers = '"$ref"' in _json(schema)
        shared = {key: root[key] for key in _DEFINITIONS if refers and key in root}
        style = {} if schema.get("type") in _SCALARS else spacing.style
        schema = {**style, **shared, **schema}
    return f"{rule}: {_JSON_RULE}{_json(schema)}"


def arguments_of(schema: Mapping[str, Any]) -> Sequence[tuple[str, bool]]:
    """The arguments that a schema names, as it does, and whether they are required."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping):
        return []
    return [(name, isinstance(required, list) and name in required) for name in properties]


def calls(tools: Sequence[HeldTool], call: Callable[[HeldTool], str], name: str = "call") -> Iterator[str]:
    """The rule of that name, which is a call of any of the tools, and one `NAME_INDEX` for each."""
    yield f"{name}: {either(f'{name}_{tool.index}' for tool in tools)}"
    for tool in tools:
        yield f"{name}_{tool.index}: {call(tool)}"


def several(rule: str, between: str, is_single: bool) -> str:
    """One of that rule, or more."""
    return rule if is_single else f"{rule} ({between} {rule})*"


def grammar(start: str, rules: Iterable[str], head: Iterable[str] = ()) -> str:
    """Of these rules, a line each; `head` stands before the first one, which is where an answer begins."""
    return "\n".join([*head, f"start: {start}", *_said_once(rules)]) + "\n"


def _said_once(rules: Iterable[str]) -> Iterator[str]:
    """A schema that others have, too, is said by the first one: tools have arguments of the same kinds."""
    said = dict[str, str]()
    for rule in rules:
        name, _, body = rule.partition(": ")
        first = said.setdefault(body, name) if body.startswith(_JSON_RULE) else name
        yield rule if first == name else f"{name}: {first}"


def _json(schema: Any) -> str:
    return json.dumps(schema, ensure_ascii=False)
