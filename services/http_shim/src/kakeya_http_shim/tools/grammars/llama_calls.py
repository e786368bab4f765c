"""How Llama's models write calls, as rules of a grammar: JSON objects, or a list in Python's notation.

Values in the list are JSON, too, which is read there as well as Python's.
"""

import json
import re
from collections.abc import Iterator, Sequence

from kakeya_http_shim.tools.grammars import lark
from kakeya_http_shim.tools.grammars.lark import HeldTool, Spacing
from kakeya_http_shim.tools.grammars.marked_calls import named_object

MARKS = ("<|python_tag|>", "<|python_start|>")
"""Either may open calls."""
CLOSES = "<|python_end|>"
"""May stand behind calls that `<|python_start|>` opened."""
BETWEEN = {Spacing.WRITTEN: lark.text("; "), Spacing.FREE: r"/(;\s{0,4})?/"}
"""Objects."""
_TOOL = re.compile(r"[^\W\d][\w.\-]*")
_KEY = re.compile(r"[^\W\d]\w*")


def objects(tools: Sequence[HeldTool], spacing: Spacing) -> Iterator[str]:
    """The rule `call`, which is one call as a JSON object, and for each tool `behind_INDEX`, from its arguments on."""

    def call(tool: HeldTool) -> str:
        return f"{spacing.row(named_object(tool.name, 'parameters'))} behind_{tool.index}"

    yield from lark.calls(tools, call)
    for tool in tools:
        yield f"behind_{tool.index}: args_{tool.index} {spacing.row('}')}"
        yield lark.arguments(tool, spacing)


def has_list(tool: HeldTool) -> bool:
    """Whether its names are such in Python's notation."""
    names = [name for name, _ in lark.arguments_of(tool.schema)] if tool.is_strict else []
    return bool(_TOOL.fullmatch(tool.name)) and all(map(_KEY.fullmatch, names))


def lists(tools: Sequence[HeldTool], spacing: Spacing) -> Iterator[str]:
    """The rule `named`, which is one call of a list, and for each tool `given_INDEX`, from behind its brace on."""
    yield from lark.calls(tools, lambda tool: f"{lark.text(tool.name + '(')} given_{tool.index}", name="named")
    for tool in tools:
        yield from _given(tool, spacing)


def _given(tool: HeldTool, spacing: Spacing) -> Iterator[str]:
    index, ends, comma = tool.index, spacing.row(")"), spacing.row(", ")
    if not tool.is_strict:
        yield f"given_{index}: (any_{index} ({comma} any_{index})*)? {ends}"
        yield f'any_{index}: /[A-Za-z_][A-Za-z0-9_]*/ "=" anything_{index}'
        yield f"anything_{index}: %json {json.dumps(spacing.style)}"
        return
    names = lark.arguments_of(tool.schema)
    yield f"given_{index}: first_{index}_0"
    # What may follow where no argument was given yet, and where one was.
    for number, (name, is_required) in enumerate(names):
        argument, then = f"arg_{index}_{number}", f"more_{index}_{number + 1}"
        yield f"{argument}: {lark.text(f'{name}=')} value_{index}_{number}"
        yield lark.value(f"value_{index}_{number}", tool.schema["properties"][name], tool.schema, spacing)
        for rule, before in (("first", ""), ("more", f"{comma} ")):
            left_out = "" if is_required else f" | {rule}_{index}_{number + 1}"
            yield f"{rule}_{index}_{number}: {before}{argument} {then}{left_out}"
    for rule in ("first", "more"):
        yield f"{rule}_{index}_{len(names)}: {ends}"
