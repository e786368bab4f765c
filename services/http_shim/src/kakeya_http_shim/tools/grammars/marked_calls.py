"""How the families whose calls begin with a mark write them: what follows that mark, as rules of a grammar.

A call has the form that its family's template shows: so the model says what it was trained to say, and
`ToolCallParser` reads it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from kakeya_http_shim.tools.grammars import bare_values, lark
from kakeya_http_shim.tools.grammars.lark import AddedId, HeldTool, Spacing

_LINE_FEED = lark.text("\n")
_ENDS = "\n</parameter>\n"


@dataclass(frozen=True, slots=True)
class MarkedCalls:
    """The calls of some tools.

    Attributes:
        opener: the mark.
        rules: among them `call`, which is one call from behind the mark on.
        between: the rule of what separates a call from the mark of the next one; "" where nothing does.
        of_list: what stands before, between and behind calls that follow one mark; None: each has a mark of its own.
        bare: texts that open a call without the mark, and the rules of what follows them.
    """

    opener: str
    rules: Sequence[str]
    between: str = ""
    of_list: tuple[str, str, str] | None = None
    bare: Mapping[str, str] = field(default_factory=dict)

    def behind_opener(self, is_single: bool) -> str:
        """What follows a mark: a call, or the list of calls."""
        if self.of_list is None:
            return "call"
        begins, between, ends = self.of_list
        return f"{begins} {lark.several('call', between, is_single)} {ends}"


def named_object(name: str, key: str) -> str:
    """A call that is a JSON object, up to its arguments."""
    return f'{{"name": {json.dumps(name)}, "{key}": '


def _hermes(tools: Sequence[HeldTool], added_id: AddedId, spacing: Spacing) -> MarkedCalls:
    ends, closes = spacing.row("}\n"), lark.mark("</tool_call>", added_id)

    def call(tool: HeldTool) -> str:
        begins = spacing.row("\n" + named_object(tool.name, "arguments"))
        return f"{begins} args_{tool.index} {ends} {closes}"

    rules = [*lark.calls(tools, call), *(lark.arguments(tool, spacing) for tool in tools)]
    return MarkedCalls("<tool_call>", rules, between=_LINE_FEED)


def _mistral(tools: Sequence[HeldTool], added_id: AddedId, spacing: Spacing) -> MarkedCalls:
    """Since 2025 a mark stands between name and arguments; a tokenizer that has it has the form, too."""
    arguments = [lark.arguments(tool, spacing) for tool in tools]
    if added_id("[ARGS]") is not None:
        separator = lark.mark("[ARGS]", added_id)
        named = lark.calls(tools, lambda tool: f"{lark.text(tool.name)} {separator} args_{tool.index}")
        return MarkedCalls("[TOOL_CALLS]", [*named, *arguments])

    def call(tool: HeldTool) -> str:
        return f"{spacing.row(named_object(tool.name, 'arguments'))} args_{tool.index} {spacing.row('}')}"

    of_list = spacing.row("["), spacing.row(", "), spacing.row("]")
    return MarkedCalls("[TOOL_CALLS]", [*lark.calls(tools, call), *arguments], of_list=of_list)


def _qwen_xml(tools: Sequence[HeldTool], added_id: AddedId, spacing: Spacing) -> MarkedCalls:
    closes = lark.mark("</tool_call>", added_id)

    def call(tool: HeldTool) -> str:
        begins = lark.text(f"\n{_function(tool)}")
        return f"{begins} given_{tool.index} {_LINE_FEED} {closes}"

    given = [rule for tool in tools for rule in _given(tool, spacing)]
    bare = {_function(tool): f"given_{tool.index}" for tool in tools if tool.is_strict}
    return MarkedCalls("<tool_call>", [*lark.calls(tools, call), *given], between=_LINE_FEED, bare=bare)


MARKED: Mapping[str, Callable[[Sequence[HeldTool], AddedId, Spacing], MarkedCalls]] = MappingProxyType(
    {"hermes": _hermes, "qwen3-xml": _qwen_xml, "mistral": _mistral}
)
"""By the family's name."""


def _function(tool: HeldTool) -> str:
    return f"<function={tool.name}>"


def _given(tool: HeldTool, spacing: Spacing) -> Iterator[str]:
    """The rule `given_INDEX`: what follows the function's name, its last tag included."""
    index, ends = tool.index, lark.text("</function>")
    if not tool.is_strict:
        yield f"given_{index}: {_LINE_FEED} any_{index}* {ends}"
        yield f'any_{index}: "<parameter=" /(?u:[^<>\\s]+)/ {lark.text(">" + chr(10))} text_{index}'
        yield from bare_values.text(f"text_{index}", _ENDS)
        return
    given = []
    for number, (name, is_required) in enumerate(lark.arguments_of(tool.schema)):
        rule, its_value = f"arg_{index}_{number}", f"value_{index}_{number}"
        yield f"{rule}: {lark.text(f'<parameter={name}>{chr(10)}')} {its_value}"
        yield from bare_values.rules(its_value, name, tool, spacing, _ENDS)
        given.append(rule if is_required else f"{rule}?")
    yield " ".join([f"given_{index}: {_LINE_FEED}", *given, ends])
