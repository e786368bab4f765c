"""Answers that are nothing but calls: where a request leaves its model no choice."""

from collections.abc import Sequence

from kakeya_http_shim.tools.grammars import lark, llama_calls
from kakeya_http_shim.tools.grammars.lark import AddedId, HeldTool, Spacing
from kakeya_http_shim.tools.grammars.marked_calls import MARKED

_SPACING = Spacing.WRITTEN


def grammar(family: str, tools: Sequence[HeldTool], added_id: AddedId, *, is_single: bool) -> str:
    """One call or more.

    Args:
        family: in `families.SYNTAXES`.
        tools: at least one; all of them may be called.
        is_single: there is one call.

    Raises:
        KeyError: there is no such family.
    """
    if family == "llama":
        start = lark.several("call", llama_calls.BETWEEN[_SPACING], is_single)
        return lark.grammar(start, llama_calls.objects(tools, _SPACING))
    written = MARKED[family](tools, added_id, _SPACING)
    opener = lark.mark(written.opener, added_id)
    if written.of_list:
        return lark.grammar(f"{opener} {written.behind_opener(is_single)}", written.rules)
    return lark.grammar(lark.several("marked", written.between, is_single), [f"marked: {opener} call", *written.rules])
