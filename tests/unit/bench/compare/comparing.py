"""What tests of `kakeya bench compare` share beside their fixtures."""

from datetime import UTC, datetime
from typing import Any

from kakeya_bench.compare.report import Report
from kakeya_bench.compare.rival import RUNTIME
from kakeya_bench.compare.settings import CompareSettings
from kakeya_bench.compare.turns import PlayedTurn
from tests.unit.bench.conversation.playing import FACTS, Outcome

SHORT = ("--new-tokens", "3", "--max-tokens", "2", "--warm-up-turns", "0")
"""Turns that take little time: three new ids, an answer of two."""


def column(outcome: Outcome, player: str, field: str) -> list[Any]:
    """One field of a player's turns."""
    return [turn[field] for turn in outcome.turns if turn["player"] == player]


def figures_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    """What a report says of one player."""
    return next(player for player in document["players"] if player["name"] == name)


def report(*turns: PlayedTurn, flags: tuple[str, ...] = (), why_not: str = "") -> Report:
    """Of three turns that the runtime, `a` and, at the marks, `c` play."""
    rivals = ("--rival=a=http://h/v1,context=2000", "--rival=c=http://h/v1,every=mark")
    settings = CompareSettings.parse(["--turns=3", *rivals, *flags])
    return Report(
        settings=settings,
        facts=FACTS,
        rival_kv=(None if why_not else 512, why_not),
        turns=[*turns],
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        environment={"machine": "one", "memory_bytes": 1 << 34},
    )


def played(index: int, seconds: float | None = 1.0, player: str = RUNTIME, **facts: Any) -> PlayedTurn:
    """A turn whose first token took so long, and the whole of it twice that; None for one that failed."""
    figures: dict[str, Any] = {"error": "it failed"}
    if seconds is not None:
        figures = {"time_to_first_token_seconds": seconds, "total_seconds": 2 * seconds}
    return PlayedTurn(
        player=player,
        index=index,
        place=0,
        started_seconds=0.0,
        history_length=10 * index,
        num_sent_tokens=5,
        **(figures | facts),
    )
