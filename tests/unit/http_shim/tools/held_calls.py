"""Calls as the templates of their families write them, and what grammars that hold them are asked about."""

import json
import re
from functools import cache
from typing import Any

from llguidance import LLMatcher
from tokenizers import Tokenizer

from kakeya_http_shim.tools.deltas import Answer, joined
from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_http_shim.tools.grammars.lark import HeldTool
from kakeya_http_shim.tools.parser import ToolCallParser
from kakeya_http_shim.tools.syntax import OfferedTools
from kakeya_shared import installed_models
from kakeya_worker.grammars.vocabulary import Vocabulary, load

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"$ref": "#/$defs/Days"},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "any": True,
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"Days": {"type": "integer"}},
}
TOOLS = [HeldTool(0, "get_weather", WEATHER), HeldTool(1, "stop", {})]
OFFERED = OfferedTools({tool.name: tool.schema for tool in TOOLS})
ROME = {"city": "Röm\n<b>", "days": 3, "unit": "f", "any": [1]}
Written = tuple[str, dict[str, Any]]
ONE: Written = ("get_weather", ROME)
OTHER: Written = ("stop", {})


def hermes(name: str, arguments: dict[str, Any]) -> str:
    given = json.dumps(arguments, ensure_ascii=False)
    return f'<tool_call>\n{{"name": "{name}", "arguments": {given}}}\n</tool_call>'


def llama(name: str, arguments: dict[str, Any]) -> str:
    return f'{{"name": "{name}", "parameters": {json.dumps(arguments, ensure_ascii=False)}}}'


def mistral(name: str, arguments: dict[str, Any]) -> str:
    return f'{{"name": "{name}", "arguments": {json.dumps(arguments, ensure_ascii=False)}}}'


def qwen_xml(name: str, arguments: dict[str, Any]) -> str:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    given = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in texts.items())
    return f"<tool_call>\n<function={name}>\n{given}</function>\n</tool_call>"


ONE_CALL = {"hermes": hermes, "llama": llama, "qwen3-xml": qwen_xml, "mistral": mistral}
BETWEEN = {"hermes": "\n", "llama": "; ", "qwen3-xml": "\n", "mistral": ", "}


def said(family: str, *calls: Written) -> str:
    text = BETWEEN[family].join(ONE_CALL[family](name, arguments) for name, arguments in calls)
    return f"[TOOL_CALLS][{text}]" if family == "mistral" else text


# Within a mark, so that its halves are no token.
_OPENERS = re.compile(r"(?<=<tool)(?=_call>)")


@cache
def backend() -> Tokenizer:
    """kakeya-nano's, which has `<tool_call>` and `</tool_call>` as tokens of their own."""
    return Tokenizer.from_file(str(installed_models.directory("kakeya-nano") / "tokenizer.json"))


@cache
def vocabulary() -> Vocabulary:
    """The same as a worker has it."""
    return load(installed_models.directory("kakeya-nano") / "tokenizer.json", backend().get_vocab_size())


def added_id(text: str) -> int | None:
    added = {token.content: id_ for id_, token in backend().get_added_tokens_decoder().items()}
    return added.get(text)


def matcher(lark: str) -> LLMatcher:
    """At the grammar's beginning."""
    return _compiled(lark).deep_copy()


@cache
def _compiled(lark: str) -> LLMatcher:
    made = LLMatcher(vocabulary().tokenizer, LLMatcher.grammar_from_lark(lark))
    assert not made.is_error(), made.get_error()
    return made


def tokens(text: str, *, is_spelled: bool = False) -> list[int]:
    """Of a text; or those with which the marks that open calls are letters."""
    pieces = _OPENERS.split(text) if is_spelled else [text]
    return [token_id for piece in pieces for token_id in backend().encode(piece, add_special_tokens=False).ids]


def is_allowed(text: str, lark: str, *, is_whole: bool = True, is_spelled: bool = False) -> bool:
    """Whether an answer may be this text; or whether one may begin with it."""
    held, token_ids = matcher(lark), tokens(text, is_spelled=is_spelled)
    return held.try_consume_tokens(token_ids) == len(token_ids) and (held.is_accepting() or not is_whole)


def read(family: str, text: str) -> Answer:
    """What a client is told of it."""
    parser = ToolCallParser(SYNTAXES[family](OFFERED))
    return joined([*parser.push(text), *parser.finish()])
