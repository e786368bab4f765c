"""What the demo measured and was told, and whether it is right."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from kakeya.kv_bytes import kv_live_bytes
from kakeya_local.demo.http_exchange import Completion
from kakeya_local.demo.http_report import HttpReport, wrong_figures
from kakeya_local.demo.turn import Turn
from kakeya_shared.process.whole_file import replacing

NUM_COMPARED_TURNS = 5
_TURN_FIELDS = (
    "conversation",
    "turn",
    "history_length",
    "new_tokens",
    "prefill_seconds",
    "decode_seconds",
    "kv_live_bytes",
    "user",
    "answer",
    "expected",
    "still_in_sight",
    "as_expected",
    "evicted_tokens",
    "forgotten_tokens",
)


@dataclass(frozen=True)
class Opened:
    """A session of the demo.

    Attributes:
        sink, window: as they were granted.
        pinned_tokens: of the system prompt and the tools; the sinks cover them.
        tools: names of what the model may call.
    """

    conversation: int
    title: str
    system: str
    sink: int
    window: int
    pinned_tokens: int
    tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pace:
    """Mean server time for an appended and for a generated token."""

    prefill_seconds: float
    decode_seconds: float

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> Self:
        """Of turns over gRPC."""
        num_generated = sum(turn.generated_tokens for turn in turns)
        num_appended = sum(turn.new_tokens for turn in turns) - num_generated
        return cls(
            sum(turn.prefill_seconds or 0 for turn in turns) / num_appended,
            sum(turn.decode_seconds or 0 for turn in turns) / num_generated,
        )


@dataclass(frozen=True)
class Reading:
    """What one call said of a session's history and KV; `call` is its name."""

    conversation: int
    turn: int
    call: str
    history_length: int
    kv_live_bytes: int


@dataclass
class DemoReport:
    """A run: its turns in the order they happened, and all that was read on the way.

    Attributes:
        sink, window: of a lane. A session that pins more than the lane's sinks has so much less window.
        sessions: in the order of their conversations.
        http: what was gone on with over HTTP; None where nothing was.
    """

    model: str
    sink: int
    window: int
    kv_bytes_per_token: int
    sessions: list[Opened] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    http: HttpReport | None = None

    def expected_bytes(self, conversation: int, history_length: int) -> int:
        """What kv_live_bytes must be after so many tokens."""
        session = self.sessions[conversation - 1]
        return kv_live_bytes(
            history_length, sink=session.sink, window=session.window, bytes_per_token=self.kv_bytes_per_token
        )

    def wrong_bytes(self) -> list[str]:
        """A line for every reading whose kv_live_bytes is not what config.json demands."""
        return [
            f"conversation {reading.conversation} turn {reading.turn}: {reading.call} says "
            f"kv_live_bytes {reading.kv_live_bytes} at history {reading.history_length}, must be {due}"
            for reading in self.readings
            if reading.kv_live_bytes != (due := self.expected_bytes(reading.conversation, reading.history_length))
        ]

    def with_tools(self) -> list[list[tuple[Turn, Completion]]]:
        """The turns of each conversation that was held over HTTP, and what was told there."""
        held = dict[int, list[tuple[Turn, Completion]]]()
        for turn in self.turns:
            if turn.completion is not None:
                held.setdefault(turn.conversation, []).append((turn, turn.completion))
        return [*held.values()]

    def wrong_figures(self) -> list[str]:
        """A line for everything that cannot be of what was told over HTTP."""
        return [
            problem
            for held in self.with_tools()
            for problem in wrong_figures(
                [(f"conversation {turn.conversation} turn {turn.turn}", said) for turn, said in held],
                self.sink + self.window,
            )
        ] + (self.http.wrong_figures() if self.http else [])

    def short_histories(self, factor: int) -> list[str]:
        """A line for every conversation that did not outgrow `factor` times sinks and window."""
        bound = factor * (self.sink + self.window)
        return [
            f"conversation {turn.conversation}: history {turn.history_length} does not exceed {bound}"
            for turn in self.last_turns()
            if turn.history_length <= bound
        ]

    def expectations(self) -> list[Turn]:
        """The turns whose answers should hold something."""
        return [turn for turn in self.turns if turn.expected]

    def missed(self) -> list[Turn]:
        """Those of them whose answers do not."""
        return [turn for turn in self.expectations() if not turn.as_expected]

    def last_turns(self) -> list[Turn]:
        """The last turn of each conversation."""
        return list({turn.conversation: turn for turn in self.turns}.values())

    def first_and_last(self) -> tuple[Pace, Pace]:
        """The pace of the first turns of all conversations over gRPC, and of the last ones."""
        timed = [turn for turn in self.turns if turn.completion is None]
        num_turns = max(turn.turn for turn in timed)
        first = [turn for turn in timed if turn.turn <= NUM_COMPARED_TURNS]
        last = [turn for turn in timed if turn.turn > num_turns - NUM_COMPARED_TURNS]
        return Pace.of(first), Pace.of(last)

    def write_json(self, path: Path) -> None:
        """Writes the report, all of it or nothing. Raises OSError."""
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(self._summary(), indent=1) + "\n", encoding="utf-8")

    def _summary(self) -> dict[str, object]:
        return {
            "model": self.model,
            "sink": self.sink,
            "window": self.window,
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "conversations": [vars(session) for session in self.sessions],
            "turns": [_turn(turn) for turn in self.turns],
            "http": self.http.summary() if self.http else None,
        }


def _turn(turn: Turn) -> dict[str, object]:
    over_http = turn.completion.figures() if turn.completion else None
    return {**{name: getattr(turn, name) for name in _TURN_FIELDS}, "over_http": over_http}
