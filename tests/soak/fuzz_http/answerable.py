"""Which conversations leave nothing to answer, or have a call that waits for its result."""

from typing import Any

from schemathesis import Case

from tests.soak.fuzz_http.stream_checks import MESSAGES, RESPONSES

CONVERSATIONS = "/v1/conversations"
COMPACT = f"{RESPONSES}/compact"
OLLAMA = "/api/"
"""Ollama's, below it: its streams are lines, and come unless they are not wanted; its errors are texts."""


def unanswerable(case: Case) -> list[tuple[str, str]]:
    """As in `broken_rules`: of Anthropic's messages, and of Ollama's, some leave nothing to answer."""
    if case.path.startswith(OLLAMA) and isinstance(case.body, dict):
        return _unanswerable_of_ollama(case.body)
    if case.path.startswith(CONVERSATIONS) and isinstance(case.body, dict):
        return _equal_ids(case.body)
    if case.path in (RESPONSES, COMPACT) and isinstance(case.body, dict):
        return _unanswerable_items(case.body)
    if not case.path.startswith(MESSAGES) or not isinstance(case.body, dict):
        return []
    body: dict[str, Any] = case.body
    said = [turn for turn in body["messages"] if turn["role"] != "system" or _has_block("text", turn["content"])]
    answer: list[Any] = []
    while said and said[-1]["role"] == "assistant":
        answer += _blocks(said.pop()["content"])
    if _has_block("tool_use", answer):
        return [("messages", "a call has its result")]
    if _lacks_tool_of_reference(body):
        return [("messages", "a tool that is referred to is among the tools")]
    is_nothing = not said and not _has_block("text", answer) and not _has_block("text", body.get("system"))
    return [("messages", "there is something to answer")] if is_nothing else []


def items(body: dict[str, Any]) -> list[Any]:
    """Those of a request for a response."""
    given = body.get("input")
    return given if isinstance(given, list) else []


def _equal_ids(body: dict[str, Any]) -> list[tuple[str, str]]:
    ids = [item["id"] for item in body.get("items") or () if item.get("id")]
    return [("items", "each has an id of its own")] if len({*ids}) < len(ids) else []


def _unanswerable_items(body: dict[str, Any]) -> list[tuple[str, str]]:
    if body.get("conversation") is not None:
        return [("conversation", "a conversation that is named is there"), *_without_end(body)]
    if body.get("previous_response_id") is not None:
        return [("previous_response_id", "a response that is named is stored"), *_without_end(body)]
    return _without_end(body)


def _without_end(body: dict[str, Any]) -> list[tuple[str, str]]:
    kinds = [item.get("type") for item in items(body)]
    if "compaction" in kinds:
        return [("input", "a compaction is one of this server's")]
    if not isinstance(body.get("input"), str) and all(kind == "reasoning" for kind in kinds):
        return [("input", "there is something to answer")]
    is_open, before = False, ""
    for item in items(body):
        kind = item.get("type") or item.get("role")
        kind = item["role"] if kind == "message" else kind
        if kind == "assistant":  # goes on with a call, and begins another answer behind a text or a thought
            is_open = is_open and before == "function_call"
        elif kind != "reasoning":
            is_open = kind == "function_call"
        before = kind
    return [("input", "a call has its result")] if is_open else []


def _unanswerable_of_ollama(body: dict[str, Any]) -> list[tuple[str, str]]:
    broken = [("think", "the model thinks, which kakeya-nano does not")] if body.get("think") else []
    messages = body.get("messages") or [{"role": "user"}]
    last = messages[-1]
    if last["role"] == "assistant":
        if last.get("tool_calls"):
            broken.append(("messages", "a call has its result"))
        elif not last.get("content") and len(messages) == 1:
            broken.append(("messages", "there is something to answer"))
    return broken


def _lacks_tool_of_reference(body: dict[str, Any]) -> bool:
    told = [block for turn in body["messages"] for block in _blocks(turn["content"])]
    found = [block for each in told if each["type"] == "tool_result" for block in _blocks(each.get("content"))]
    offered = {tool["name"] for tool in body.get("tools") or ()}
    return any(block["type"] == "tool_reference" and block["tool_name"] not in offered for block in found)


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _has_block(kind: str, content: Any) -> bool:
    return any(block["type"] == kind and block.get("text", kind) for block in _blocks(content))
