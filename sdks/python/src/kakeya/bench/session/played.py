"""What a report's document says of a run, as its page and its pictures need it."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from kakeya.bench.turn import Turn

K = TypeVar("K", int, str)


@dataclass(frozen=True, slots=True)
class Played:
    """A run.

    Attributes:
        turns: in any order.
        bytes_per_token: KV of one token by the model's config.json; None where that is not known.
        gates: by name, as they stand in the document.
    """

    model: str
    turns: Sequence[Turn]
    num_warm_up_turns: int
    bytes_per_token: int | None
    gates: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """What `Report.document` or a report.json holds."""
        return cls(
            model=document["model"]["name"],
            turns=[Turn(**turn) for turn in document["turns"]],
            num_warm_up_turns=document["options"]["num_warm_up_turns"],
            bytes_per_token=document["model"]["kv_bytes_per_token"],
            gates=document["gates"],
        )

    @property
    def succeeded(self) -> list[Turn]:
        """The turns that did not fail."""
        return [turn for turn in self.turns if turn.error is None]

    @property
    def failed(self) -> list[Turn]:
        """The turns that did."""
        return [turn for turn in self.turns if turn.error is not None]

    @property
    def why_nothing(self) -> str:
        """Why there is nothing to draw, where no turn succeeded."""
        return "no turn succeeded" if self.turns else "no turn was played"

    @property
    def capacities(self) -> list[int]:
        """Sinks and windows of the sessions, in tokens; ascending, each once."""
        return sorted({turn.capacity for turn in self.succeeded})

    def by_session(self) -> dict[int, list[Turn]]:
        """The turns that did not fail, in order."""
        return _grouped(self.succeeded, lambda turn: turn.session)

    def by_worker(self) -> dict[str, list[Turn]]:
        """The turns that did not fail and after which a worker's memory is known, in order."""
        return _grouped([turn for turn in self.succeeded if turn.worker_rss_bytes], lambda turn: turn.worker)


def _grouped(turns: Sequence[Turn], key: Callable[[Turn], K]) -> dict[K, list[Turn]]:
    groups: defaultdict[K, list[Turn]] = defaultdict(list)
    for turn in sorted(turns, key=lambda turn: (turn.index, turn.started_seconds)):
        groups[key(turn)].append(turn)
    return {each: groups[each] for each in sorted(groups)}
