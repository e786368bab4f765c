"""Crowds of conversations over HTTP: what live sessions share, outlive, cost, and leave."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from kakeya_shared.settings.service import setting
from tests.soak.crowd_http import heads, kept, killed, lanes, singles
from tests.soak.crowd_http.ground import ground
from tests.soak.crowd_http.heads import HeadsRun
from tests.soak.crowd_http.kept import KeptRun
from tests.soak.crowd_http.killed import KilledRun
from tests.soak.crowd_http.lanes import LanesRun
from tests.soak.crowd_http.part import Facts, Part
from tests.soak.crowd_http.singles import SinglesRun
from tests.soak.progress import Progress
from tests.soak.proof import SeededProof
from tests.soak.report import Report

_LEFT_SECONDS = 30.0
"""After the last session's time: passes of the reaper and what a close takes; a busy machine included."""


class CrowdHttp(SeededProof):
    """Crowds of conversations through two HTTP shims, in front of a real stack, in five parts; each is left out where
    it is given 0. Shims are killed in mid-stream, and conversations go on at the other. Conversations with one head of
    3,000 tokens prefill it once. Many more conversations than lanes have turns in random order. Single requests are
    asked with live sessions and without. Conversations that are left are kept within the bounds of the store, and not
    beyond their time. After each part nothing may be left. Exits with 1 when any of that does not hold, or a log
    complains.
    """

    SEED: ClassVar = "CROWD_SEED"
    model_config = SeededProof.named("crowd-http")

    kills: int = setting(20, "of shims in mid-stream", unit="kills", reason="some 100 answers are cut off", ge=0)
    heads: int = setting(100, "with one head", unit="conversations", reason="six to a lane", ge=0)
    talks: int = setting(1_000, "over 16 lanes, five turns each", unit="conversations", reason="62 to a lane", ge=0)
    singles: int = setting(
        10_000, "with live sessions, and as many without", unit="requests", reason="100 pairs of blocks", ge=0
    )
    kept: int = setting(5_000, "that are left", unit="conversations", reason="ten times what is kept", ge=0)
    idle_seconds: int = setting(
        60, "after which a session is closed", unit="seconds", reason="most gaps between two turns are shorter", ge=2
    )
    snapshot_bytes: int = setting(48 << 20, "the store's bound", unit="bytes", reason="some 500 sessions", ge=1 << 20)
    parked_sessions: int = setting(1_000, "the other bound", unit="sessions", reason="it is not in the way", ge=1)

    def prove(self, directory: Path, progress: Progress) -> Report:
        """Part after part, each on a runtime of its own."""
        parts: list[tuple[str, int, Callable[[Path, Progress], tuple[Part, Facts]]]] = [
            ("killed", self.kills, self._killed),
            ("heads", self.heads, self._heads),
            ("lanes", self.talks, self._lanes),
            ("singles", self.singles, self._singles),
            ("kept", self.kept, self._kept),
        ]
        facts: dict[str, Any] = {"seed": self.seed}
        violations: list[str] = []
        late: list[str] = []
        num_violations = 0
        for name, size, part in parts:
            if size:
                run, found = part(directory / name, progress)
                facts |= {f"{name}, {fact}": value for fact, value in found.items()}
                violations += [f"{name}: {what}" for what in run.tally.violations]
                num_violations += run.tally.num_violations
                late += [f"{name}: {what}" for what in run.late]
        return Report(facts, violations, num_violations, late)

    def _killed(self, directory: Path, progress: Progress) -> tuple[Part, Facts]:
        with ground(directory, *self._shim_flags, lanes=killed.LANES) as made:
            run = KilledRun(made, progress, self.seed)
            return run, asyncio.run(run.run(self.kills, self._left_seconds))

    def _heads(self, directory: Path, progress: Progress) -> tuple[Part, Facts]:
        with ground(
            directory, *self._shim_flags, lanes=heads.LANES, window=heads.WINDOW, stores=True, traces=True
        ) as made:
            run = HeadsRun(made, progress, self.idle_seconds)
            return run, asyncio.run(run.run(self.heads, self._left_seconds))

    def _lanes(self, directory: Path, progress: Progress) -> tuple[Part, Facts]:
        with ground(directory, *self._shim_flags, lanes=lanes.LANES, stores=True, traces=True) as made:
            run = LanesRun(made, progress, self.seed)
            return run, asyncio.run(run.run(self.talks, self._left_seconds))

    def _singles(self, directory: Path, progress: Progress) -> tuple[Part, Facts]:
        with ground(directory, "--live-sessions=off", lanes=singles.LANES, num_shims=1) as made:
            made.made.start_http(*self._shim_flags)
            run = SinglesRun(made, progress)
            return run, asyncio.run(run.run(self.singles, self._left_seconds))

    def _kept(self, directory: Path, progress: Progress) -> tuple[Part, Facts]:
        bounds = f"--snapshot-bytes={self.snapshot_bytes}", f"--parked-sessions={self.parked_sessions}"
        with ground(directory, *self._shim_flags, lanes=kept.LANES, router_flags=bounds, stores=True) as made:
            run = KeptRun(made, progress, max_bytes=self.snapshot_bytes, max_parked=self.parked_sessions)
            return run, asyncio.run(run.run(self.kept, self._left_seconds))

    @property
    def _shim_flags(self) -> tuple[str, ...]:
        """Sessions are parked by time, too, in the midst of a run."""
        park_seconds = max(1, self.idle_seconds // 4)
        return (
            *("--live-sessions=on", f"--session-close-after-seconds={self.idle_seconds}"),
            f"--session-park-after-seconds={park_seconds}",
        )

    @property
    def _left_seconds(self) -> float:
        return self.idle_seconds + _LEFT_SECONDS
