"""The report of a run: a JSON document, meanwhile and in the end."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from kakeya.bench.compare import claims
from kakeya.bench.compare.figures import MARK_TURNS, figures
from kakeya.bench.compare.options import Options
from kakeya.bench.compare.played_turn import PlayedTurn
from kakeya.bench.compare.rival import RUNTIME, Rival
from kakeya.bench.compare.rival_kv import DTYPE, RivalKv
from kakeya.bench.environment import environment
from kakeya.bench.facts import Facts
from kakeya.bench.verdict import Verdict

SCHEMA = "kakeya.bench.compare/1"
JSON_NAME = "compare.json"


@dataclass
class Report:
    """What a run has found so far.

    Attributes:
        rss_before: resident memory of each player's server before the first turn, where it is known.
        left_out: players that failed too often, and after which turn.
        state: running, complete, interrupted, or given_up where the runtime failed too often.
    """

    options: Options
    facts: Facts
    kv: RivalKv
    turns: list[PlayedTurn] = field(default_factory=list)
    rss_before: dict[str, int | None] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    state: str = "running"
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    _environment: Mapping[str, object] = field(default_factory=environment)

    def verdicts(self) -> list[Verdict]:
        """What becomes of each claim."""
        options = self.options
        return claims.judge(options.claims, options.rivals, self.turns, options.marks[-1])

    def document(self) -> dict[str, Any]:
        """Everything, as plain values for JSON."""
        rivals = [self._player(rival.name, rival.plays_every_turn, _rival(rival)) for rival in self.options.rivals]
        return {
            "schema": SCHEMA,
            "state": self.state,
            "started_at": self.started_at.isoformat(timespec="seconds"),
            "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "options": _options(self.options),
            "environment": dict(self._environment),
            "model": self.facts.document(),
            "rival_kv": {"dtype": DTYPE, "bytes_per_token": self.kv.bytes_per_token, "why_not": self.kv.why_not},
            "marks": list(self.options.marks),
            "turns_to_a_mark": MARK_TURNS,
            "players": [self._player(RUNTIME, True, {"kind": "runtime"}), *rivals],
            "claims": {verdict.gate: _verdict(verdict) for verdict in self.verdicts()},
            "turns": [asdict(turn) for turn in self.turns],
        }

    def _player(self, name: str, plays_every_turn: bool, facts: Mapping[str, object]) -> dict[str, object]:
        return {
            "name": name,
            **facts,
            "plays_every_turn": plays_every_turn,
            "left_out_after_turn": self.left_out.get(name),
            **figures(
                [turn for turn in self.turns if turn.player == name],
                marks=self.options.marks,
                num_turns=self.options.num_turns,
                plays_every_turn=plays_every_turn,
                rss_before=self.rss_before.get(name),
            ),
        }


def _rival(rival: Rival) -> dict[str, object]:
    """Everything but the key."""
    return {
        "kind": "rival",
        "url": rival.url,
        "model": rival.model,
        "context": rival.context,
        "keep": rival.keep if rival.context else None,
        "drop": rival.drop if rival.context else None,
        "kv_tokens": rival.kv_tokens,
        "fields": dict(rival.fields),
    }


def _verdict(verdict: Verdict) -> dict[str, object]:
    return {
        "outcome": verdict.outcome.value,
        "formula": verdict.formula,
        "reason": verdict.reason,
        "figures": dict(verdict.figures),
    }


def _options(options: Options) -> dict[str, object]:
    return {
        "address": options.connection.address,
        "model": options.model,
        "num_turns": options.num_turns,
        "num_new_tokens": options.num_new_tokens,
        "max_tokens": options.max_tokens,
        "num_warm_up_turns": options.num_warm_up_turns,
        "sink": options.sink,
        "window": options.window,
        "seed": options.seed,
        "timeout_seconds": options.timeout_seconds,
    }
