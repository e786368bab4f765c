"""Grammars of calls: what an answer is held to where a request leaves its model no choice but to call.

They are in llguidance's form of Lark (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md). A call has
the form that its family's template shows: so the model says what it was trained to say, and `ToolCallParser` reads it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kakeya_http_shim.tools.argument_types import known_arguments, types_of_argument
from kakeya_http_shim.tools.syntax import OfferedTools

AddedId = Callable[[str], int | None]
"""The token that was added to the vocabulary and is written so; None where there is none, and its letters are said."""

_DEFINITIONS = ("$defs", "definitions")
_STYLE = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}
"""As JSON is written in what models learn from, and no more of white space, which a small one does not end."""
_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


def grammar(family: str, tools: OfferedTools, added_id: AddedId, *, name: str | None, is_single: bool) -> str:
    """One call or more, and nothing else.

    Args:
        family: in `families.SYNTAXES`.
        name: of the tool that has to be called; None: one of them.
        is_single: there is one call.

    Raises:
        KeyError: there is no such family, or no such tool.
    """
    offered = tools.schemas if name is None else {name: tools.schemas[name]}
    return _FAMILIES[family](offered, added_id, is_single)


def _hermes(schemas: Mapping[str, Any], added_id: AddedId, is_single: bool) -> str:
    opens, closes = _mark("<tool_call>", added_id), _mark("</tool_call>", added_id)
    calls = [
        f"{opens} {_text(_beginning(name, 'arguments', before=chr(10)))} args_{index} {_text('}' + chr(10))} {closes}"
        for index, name in enumerate(schemas)
    ]
    return _rules(calls, schemas, is_single, between=_text("\n"))


def _llama(schemas: Mapping[str, Any], _added_id: AddedId, is_single: bool) -> str:
    calls = [f"{_text(_beginning(name, 'parameters'))} args_{index} {_text('}')}" for index, name in enumerate(schemas)]
    return _rules(calls, schemas, is_single, between=_text("; "))


def _mistral(schemas: Mapping[str, Any], added_id: AddedId, is_single: bool) -> str:
    """Since 2025 a mark stands between name and arguments; a tokenizer that has it has the form, too."""
    opens = _mark("[TOOL_CALLS]", added_id)
    if added_id("[ARGS]") is not None:
        calls = [
            f"{opens} {_text(name)} {_mark('[ARGS]', added_id)} args_{index}" for index, name in enumerate(schemas)
        ]
        return _rules(calls, schemas, is_single, between="")
    calls = [f"{_text(_beginning(name, 'arguments'))} args_{index} {_text('}')}" for index, name in enumerate(schemas)]
    return _rules(calls, schemas, is_single, between=_text(", "), around=(f"{opens} {_text('[')}", _text("]")))


def _qwen_xml(schemas: Mapping[str, Any], added_id: AddedId, is_single: bool) -> str:
    opens, closes = _mark("<tool_call>", added_id), _mark("</tool_call>", added_id)
    calls, rules = [], []
    for index, (name, schema) in enumerate(schemas.items()):
        given = []
        for number, argument in enumerate(_in_order(schema)):
            rule = f"arg_{index}_{number}"
            begins = _text(f"<parameter={argument}>\n")
            rules.append(f"{rule}: {begins} value_{index}_{number}")
            rules += _value(f"value_{index}_{number}", argument, schema)
            given.append(rule if argument in schema.get("required", ()) else f"{rule}?")
        called, ends = _text(f"\n<function={name}>\n"), _text("</function>\n")
        calls.append(" ".join([opens, called, *given, ends, closes]))
    return "\n".join([*_start(calls, is_single, between=_text("\n")), *rules]) + "\n"


_FAMILIES: Mapping[str, Callable[[Mapping[str, Any], AddedId, bool], str]] = MappingProxyType(
    {"hermes": _hermes, "qwen3-xml": _qwen_xml, "llama": _llama, "mistral": _mistral}
)


def _beginning(name: str, arguments: str, before: str = "") -> str:
    return f'{before}{{"name": {json.dumps(name)}, "{arguments}": '


def _rules(
    calls: Sequence[str],
    schemas: Mapping[str, Any],
    is_single: bool,
    *,
    between: str,
    around: tuple[str, str] = ("", ""),
) -> str:
    """The grammar of calls whose arguments are JSON, by rules of their own: a schema's references are within it."""
    arguments = [f"args_{index}: %json {_json(_arguments(schema))}" for index, schema in enumerate(schemas.values())]
    return "\n".join([*_start(calls, is_single, between=between, around=around), *arguments]) + "\n"


def _start(calls: Sequence[str], is_single: bool, *, between: str, around: tuple[str, str] = ("", "")) -> Iterator[str]:
    opens, closes = around
    more = "" if is_single else f"({between} call)*"
    yield f"start: {opens} call {more} {closes}"
    yield f"call: {' | '.join(f'call_{index}' for index in range(len(calls)))}"
    for index, call in enumerate(calls):
        yield f"call_{index}: {call}"


def _arguments(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a call that is an object, whatever its schema leaves out."""
    return {**_STYLE, "type": "object", **schema} if schema else {**_STYLE, **_NO_ARGUMENTS}


def _in_order(schema: Mapping[str, Any]) -> Sequence[str]:
    """The arguments that a schema names, as it does."""
    known = known_arguments(schema)
    return [name for name in schema.get("properties", {}) if name in known]


def _value(rule: str, name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """An argument as these models write it, up to its closing tag: texts bare, all else as JSON."""
    ends = "\n</parameter>\n"
    given = schema["properties"][name]
    if types_of_argument(name, schema) == frozenset({"string"}):
        if isinstance(given, Mapping) and isinstance(given.get("enum"), list):
            yield f"{rule}: ({' | '.join(_text(str(text)) for text in given['enum'])}) {_text(ends)}"
        else:
            yield f"{rule}[suffix={_text(ends)}]: /(?s:.*)/"
        return
    shared = {key: schema[key] for key in _DEFINITIONS if key in schema}
    own = {**_STYLE, **shared, **given} if isinstance(given, Mapping) else given
    yield f"{rule}: {rule}_json {_text(ends)}"
    yield f"{rule}_json: %json {_json(own)}"


def _mark(text: str, added_id: AddedId) -> str:
    token_id = added_id(text)
    return _text(text) if token_id is None else f"<[{token_id}]>"


def _text(text: str) -> str:
    """A text in Lark's notation, which is JSON's."""
    return json.dumps(text, ensure_ascii=False)


def _json(schema: Any) -> str:
    return json.dumps(schema, ensure_ascii=False)
