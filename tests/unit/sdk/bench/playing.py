"""What tests of `kakeya bench session` share beside their fixtures."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.unit.sdk.scripted_runtime import ScriptedRuntime

CONFIG = {
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64,
}  # fmt: skip
"""Of a model whose KV in float32 is 4 x 2 x 16 x 4 x 2 = 1,024 bytes a token."""
RSS_BYTES = 300 << 20
SHORT = ("--random-tokens", "3", "--max-tokens", "2")
"""Turns that take little time: three random ids, an answer of two."""


class Outcome(NamedTuple):
    """What a run of the bench left behind.

    Attributes:
        out, err: what it said.
        document: its report; empty where there is none.
    """

    status: int
    out: str
    err: str
    document: dict[str, Any]

    @property
    def turns(self) -> list[dict[str, Any]]:
        """As the document has them."""
        turns: list[dict[str, Any]] = self.document["turns"]
        return turns

    def gate(self, name: str) -> dict[str, Any]:
        """What one gate said."""
        said: dict[str, Any] = self.document["gates"][name]
        return said


Play = Callable[..., Outcome]
"""Runs the bench with these flags beside those that name the scripted runtime, and returns what came of it.

The fixture `bench` runs the command, the fixture `play` what it runs: no files but the checkpoints are written then.
"""


def appended(runtime: ScriptedRuntime, session_id: str | None = None) -> list[list[int]]:
    """The ids of each append, to one session or to all."""
    requests = runtime.requests["AppendTokens"]
    return [list(request.token_ids) for request in requests if session_id in (None, request.session_id)]
