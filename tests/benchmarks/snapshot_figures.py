"""What snapshots cost: the figures of `make bench-snapshots`, and the bounds that they are held to."""

from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from tests.benchmarks.interval import interval_of_mean

MOST_BEYOND_RATIO, MOST_BEYOND_BYTES = 0.01, 64 * 1024
"""What a file may have beyond the KV in it: 12 bytes a token of position and id, a hidden vector, a header."""
LEAST_RESUME_RATIO = 20.0
MOST_SLOWDOWN = 0.05


@dataclass(frozen=True)
class Size:
    """Of one file in the store, which holds what a session gained from one history length to another.

    Attributes:
        num_tokens: of these, as many as the session kept at `length`.
        kv_bytes: that they take in the lane.
    """

    start: int
    length: int
    num_tokens: int
    kv_bytes: int
    size_bytes: int

    @classmethod
    def of(cls, path: Path, sink: int, window: int, kv_bytes_per_token: int) -> "Size":
        """Of a file by its name, PREFIX-START-RANDOM-LENGTH.safetensors, and by its length on the disk."""
        _, start, _, length = path.stem.rsplit("-", 3)
        num_tokens = num_kept(int(start), int(length), sink, window)
        return cls(int(start), int(length), num_tokens, num_tokens * kv_bytes_per_token, path.stat().st_size)

    @property
    def beyond_bytes(self) -> int:
        return self.size_bytes - self.kv_bytes

    @property
    def is_kept(self) -> bool:
        return 0 <= self.beyond_bytes <= MOST_BEYOND_RATIO * self.kv_bytes + MOST_BEYOND_BYTES


def num_kept(start: int, length: int, sink: int, window: int) -> int:
    """Tokens from one history index on that a session keeps at a length: its sinks and its window."""
    return sum(index < sink or index >= length - window for index in range(start, length))


@dataclass
class Resumes:
    """Seconds, one number a round.

    Attributes:
        prefill: of a new session's tokens, to its first answer's first token.
        write: of the whole snapshot, by itself: sessions that are parked have theirs from the end of their last turn.
        park, resume: of the call, and of the next answer's first token.
    """

    num_tokens: int
    prefill: list[float] = field(default_factory=list)
    write: list[float] = field(default_factory=list)
    park: list[float] = field(default_factory=list)
    resume: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return median(self.prefill) / median(map(sum, zip(self.park, self.resume, strict=True)))

    @property
    def ratio_with_write(self) -> float:
        return median(self.prefill) / median(map(sum, zip(self.write, self.park, self.resume, strict=True)))

    @property
    def prefill_tokens_per_second(self) -> float:
        return self.num_tokens / median(self.prefill)

    @property
    def is_kept(self) -> bool:
        return self.ratio >= LEAST_RESUME_RATIO


@dataclass
class Decodes:
    """Seconds from one token to the next of a session, alone and while another one's snapshots are written.

    Attributes:
        written_bytes: in all stretches of the latter.
    """

    alone: list[list[float]] = field(default_factory=list)
    beside: list[list[float]] = field(default_factory=list)
    written_bytes: int = 0

    @property
    def slowdown(self) -> float:
        """Of all tokens, so that a stall counts for what it takes."""
        return mean(chain(*self.beside)) / mean(chain(*self.alone)) - 1

    @property
    def slowdowns(self) -> list[float]:
        """Pair by pair."""
        return [mean(beside) / mean(alone) - 1 for alone, beside in zip(self.alone, self.beside, strict=True)]

    @property
    def written_bytes_per_second(self) -> float:
        return self.written_bytes / sum(map(sum, self.beside))

    @property
    def is_kept(self) -> bool:
        return self.slowdown <= MOST_SLOWDOWN


@dataclass
class Figures:
    """Of one run."""

    sizes: list[Size]
    resumes: Resumes
    decodes: Decodes

    @property
    def is_kept(self) -> bool:
        return all(size.is_kept for size in self.sizes) and self.resumes.is_kept and self.decodes.is_kept


def as_dict(figures: Figures) -> dict[str, Any]:
    """What was measured, and what it was judged by."""
    resumes, decodes = figures.resumes, figures.decodes
    return {
        "sizes": [{**asdict(size), "is_kept": size.is_kept} for size in figures.sizes],
        "most_beyond": {"ratio": MOST_BEYOND_RATIO, "bytes": MOST_BEYOND_BYTES},
        "resumes": {**asdict(resumes), "ratio": resumes.ratio, "ratio_with_write": resumes.ratio_with_write},
        "least_resume_ratio": LEAST_RESUME_RATIO,
        "decodes": {
            "alone_ms": _milliseconds(list(chain(*decodes.alone))),
            "beside_ms": _milliseconds(list(chain(*decodes.beside))),
            "slowdown": decodes.slowdown,
            "slowdowns": decodes.slowdowns,
            "written_bytes_per_second": decodes.written_bytes_per_second,
        },
        "most_slowdown": MOST_SLOWDOWN,
        "is_kept": figures.is_kept,
    }


def show(figures: Figures) -> None:
    """Prints tables and verdicts."""
    resumes, decodes = figures.resumes, figures.decodes
    print(f"{'from':>7}{'to':>8}{'tokens':>8}{'KV bytes':>14}{'file bytes':>14}{'beyond':>9}")
    for size in figures.sizes:
        print(
            f"{size.start:7,}{size.length:8,}{size.num_tokens:8,}{size.kv_bytes:14,}{size.size_bytes:14,}"
            f"{size.beyond_bytes:9,}  {_verdict(size.is_kept)}"
        )
    print(f"a session of {resumes.num_tokens:,} tokens, medians of {len(resumes.prefill)} rounds:")
    for name in ("prefill", "write", "park", "resume"):
        print(f"  {name:8}{median(getattr(resumes, name)):9.3f} s")
    print(
        f"  park and resume are {resumes.ratio:.1f} times as fast as the prefill (bound: {LEAST_RESUME_RATIO:g}, "
        f"{_verdict(resumes.is_kept)}), with the write {resumes.ratio_with_write:.1f} times"
    )
    for name, stretches in (("alone", decodes.alone), ("beside", decodes.beside)):
        numbers = "  ".join(f"{key} {value:8.2f} ms" for key, value in _milliseconds(list(chain(*stretches))).items())
        print(f"decode {name:8}{numbers}")
    low, high = interval_of_mean(np.array(decodes.slowdowns))
    print(
        f"beside {decodes.written_bytes_per_second / 1e6:.1f} MB/s of snapshots: {100 * decodes.slowdown:+.1f} % "
        f"(bound: {100 * MOST_SLOWDOWN:+g} %, {_verdict(decodes.is_kept)}); mean of {len(decodes.slowdowns)} pairs "
        f"with 95 % between {100 * low:+.1f} and {100 * high:+.1f} %"
    )


def _milliseconds(gaps: list[float]) -> dict[str, float]:
    p50, p95 = np.percentile(gaps, (50, 95))
    named = {"mean": mean(gaps), "p50": p50, "p95": p95, "max": max(gaps)}
    return {name: round(float(value) * 1e3, 2) for name, value in named.items()}


def _verdict(is_kept: bool) -> str:
    return "kept" if is_kept else "BROKEN"
