"""Calls of tools as the models of families write them: never spaced as their chat templates do it."""

import json
from typing import Any, Final

from tests.loops.families import XML, FamilyModel

TOOL_PARSERS: Final = ("--tool-parser=llama-3.1=llama",)
"""What a shim is told of families whose templates do not show how they call."""


def call_text(family: str, *calls: tuple[str, dict[str, Any]]) -> str:
    """Calls, each with its name and arguments.

    Raises:
        KeyError: the family writes none.
    """
    return _WRITERS[family]([(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in calls])


def forced_call_text(family: str, name: str, arguments: dict[str, Any]) -> str:
    """One call as the grammar has it that a forced answer is held to: in the form of the family's template.

    Raises:
        KeyError: the family writes none.
    """
    if family == XML.name:
        return call_text(family, (name, arguments))
    begins, ends = _FORCED[family]
    return f"{begins.replace('NAME', name)}{json.dumps(arguments, ensure_ascii=False)}{ends}"


def call_tokens(model: FamilyModel, text: str) -> list[int]:
    """An answer that calls, with its end; what spells a control token in it is one."""
    return [*model.tokenizer.encode(text, special_tokens=False), model.end_id]


def _hermes(calls: list[tuple[str, str]]) -> str:
    return "\n".join(f'<tool_call>\n{{"name": "{name}",  "arguments": {each}}}\n</tool_call>' for name, each in calls)


def _mistral(calls: list[tuple[str, str]]) -> str:
    written = ", ".join(f'{{"name":"{name}","arguments":{each}}}' for name, each in calls)
    return f"[TOOL_CALLS] [{written}]"


def _llama(calls: list[tuple[str, str]]) -> str:
    return "; ".join(f'{{"name": "{name}",  "parameters": {each}}}' for name, each in calls)


def _xml(calls: list[tuple[str, str]]) -> str:
    return "\n".join(_xml_call(name, json.loads(each)) for name, each in calls)


def _xml_call(name: str, arguments: dict[str, Any]) -> str:
    texts = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in arguments.values()]
    given = (f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in zip(arguments, texts, strict=True))
    return f"<tool_call>\n<function={name}>\n{''.join(given)}</function>\n</tool_call>"


_WRITERS: Final = {
    **dict.fromkeys(("Qwen3", "Qwen2.5", "nano", "Coder"), _hermes),
    XML.name: _xml,
    "Llama 3.1": _llama,
    "Mistral": _mistral,
}
_HERMES: Final = ('<tool_call>\n{"name": "NAME", "arguments": ', "}\n</tool_call>")
_FORCED: Final = {
    "Qwen3": _HERMES,
    "Qwen2.5": _HERMES,
    "Coder": _HERMES,
    "Llama 3.1": ('{"name": "NAME", "parameters": ', "}"),
    "Mistral": ('[TOOL_CALLS][{"name": "NAME", "arguments": ', "}]"),
}
