"""What the tests of the parsers share."""

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import count, pairwise
from typing import Any

from kakeya_http_shim.tools.deltas import Answer, ArgumentText, CallBegun, Delta, joined
from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_http_shim.tools.parser import ToolCallParser
from kakeya_http_shim.tools.syntax import OfferedTools

TOOLS = OfferedTools.of(
    [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string"},
                        "days": {"type": "integer"},
                        "exact": {"type": "boolean"},
                        "places": {"type": "array", "items": {"type": "string"}},
                    },
                },
            },
        },
        {"type": "function", "function": {"name": "get_time"}},
    ]
)


def parser_of(family: str) -> ToolCallParser:
    """With ids that count, so that two parsers give the same."""
    ids = count()
    return ToolCallParser(SYNTAXES[family](TOOLS), lambda: f"id{next(ids):07}")


def deltas_of(family: str, pieces: Iterable[str]) -> list[Delta]:
    parser = parser_of(family)
    return [*(delta for piece in pieces for delta in parser.push(piece)), *parser.finish()]


def answer(family: str, text: str) -> Answer:
    """All of it, the same in one piece and letter by letter."""
    whole = joined(deltas_of(family, [text]))
    assert joined(deltas_of(family, text)) == whole
    return whole


def calls(family: str, text: str) -> list[tuple[str, dict[str, Any]]]:
    """Their names and arguments, where nothing but calls was said."""
    said = answer(family, text)
    assert (said.content, said.unfinished) == ("", "")
    return [(call.name, json.loads(call.arguments)) for call in said.calls]


def cut(text: str, at: Sequence[int]) -> list[str]:
    """The text in pieces, some of them empty."""
    borders = [0, *sorted(min(place, len(text)) for place in at), len(text)]
    return [text[start:end] for start, end in pairwise(borders)]


def check_order(deltas: Iterable[Delta]) -> None:
    """Calls are told one after the other, each with its name first."""
    begun: list[CallBegun] = []
    for delta in deltas:
        if isinstance(delta, CallBegun):
            assert delta.index == len(begun)
            begun.append(delta)
        elif isinstance(delta, ArgumentText):
            assert delta.index == len(begun) - 1
    assert len({call.id for call in begun}) == len(begun)


def _hermes(name: str, arguments: dict[str, Any]) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def _mistral(name: str, arguments: dict[str, Any]) -> str:
    return f"[TOOL_CALLS]{name}[ARGS]{json.dumps(arguments, ensure_ascii=False)}"


def _llama(name: str, arguments: dict[str, Any]) -> str:
    pairs = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"<|python_start|>[{name}({pairs})]<|python_end|>"


def _xml(name: str, arguments: dict[str, Any]) -> str:
    texts = [f"<parameter={key}>\n{json.dumps(value)}\n</parameter>\n" for key, value in arguments.items()]
    return f"<tool_call>\n<function={name}>\n{''.join(texts)}</function>\n</tool_call>"


WRITERS: dict[str, Callable[[str, dict[str, Any]], str]] = {
    "hermes": _hermes,
    "mistral": _mistral,
    "llama": _llama,
    "qwen3-xml": _xml,
}
"""Write a call of this name with these arguments as the family does."""
