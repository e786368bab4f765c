"""What a worker counts and measures. Gauges of its lanes are `kakeya_worker.engine.gauges`."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from kakeya_shared.metrics.meters import Buckets, Label, Meters

PREFIX = "kakeya_worker"

_STEP_SECONDS = Buckets(
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0),
    "from a step of kakeya-nano to one of a large model with prefills; fine where a reader begins to notice",
)
_ROWS = Buckets((1, 2, 4, 8, 16, 32, 64, 128, 256), "lanes of a worker, by powers of two")
_PREFILL_SECONDS = Buckets(
    (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
    "20,000 tokens a second down to four, which are the rates of processors",
)
_FILE_SECONDS = Buckets(
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    "a small lane on a disk takes a millisecond, routers give up after a minute",
)
_HEARTBEAT_SECONDS = Buckets(
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0),
    "a router answers within milliseconds and is given up after 2 s",
)


class WorkerMetrics:
    """Counts what happens in this process."""

    def __init__(self, meters: Meters) -> None:
        self.meters = meters
        self._declare_steps(meters)
        self._declare_snapshots(meters)
        self.heartbeat_seconds = meters.histogram(
            "kakeya_worker_heartbeat_seconds",
            'Heartbeats, by what became of them: "answered", or "failed".',
            Label("outcome", ("answered", "failed")),
            buckets=_HEARTBEAT_SECONDS,
        )
        self.tunnels = meters.gauge("kakeya_worker_tunnels", "Tunnels to routers that stand now, with `--reverse`.")
        self.ended_tunnels = meters.counter("kakeya_worker_ended_tunnels_total", "Tunnels that stood and have ended.")
        self.lost_leases = meters.counter(
            "kakeya_worker_lost_leases_total", "Times that routers had given this worker up, and all lanes were freed."
        )

    def _declare_steps(self, meters: Meters) -> None:
        self.prefilled_tokens = meters.counter(
            "kakeya_worker_prefilled_tokens_total", "Tokens of appends that were committed.", unit="tokens"
        )
        self.generated_tokens = meters.counter(
            "kakeya_worker_generated_tokens_total", "Generated tokens that were committed.", unit="tokens"
        )
        self.drafted_tokens = meters.counter(
            "kakeya_worker_drafted_tokens_total", "Drafts of proposers that were checked.", unit="tokens"
        )
        self.accepted_tokens = meters.counter(
            "kakeya_worker_accepted_tokens_total",
            "Drafts that were right, each a generated token without a step of its own.",
            unit="tokens",
        )
        self.draft_seconds = meters.counter(
            "kakeya_worker_draft_seconds_total", "Time that steps have waited for a draft model.", unit="seconds"
        )
        self.forgotten_tokens = meters.counter(
            "kakeya_worker_forgotten_tokens_total",
            "Tokens that have left the windows of sessions, counted when an operation ends.",
            unit="tokens",
        )
        self.prefill_seconds = meters.histogram(
            "kakeya_worker_prefill_token_seconds",
            "Of an append's tokens, on average, from its coming in to its last commit, with waits for others' rows.",
            buckets=_PREFILL_SECONDS,
        )
        self.step_seconds = meters.histogram(
            "kakeya_worker_step_seconds", "Forward passes with what is around them.", buckets=_STEP_SECONDS
        )
        self.step_rows = meters.histogram(
            "kakeya_worker_step_rows", "Sessions that were committed in a step.", buckets=_ROWS, unit="rows"
        )
        self.failed_rows = meters.counter(
            "kakeya_worker_failed_rows_total",
            "Sessions of steps whose pass or choice of a token has failed.",
            unit="rows",
        )
        self.invariant_violations = meters.counter(
            "kakeya_worker_invariant_violations_total",
            "Lanes that did not hold what they must, and were freed, by invariant.",
            Label("invariant", ("inv1", "inv2")),
        )

    def _declare_snapshots(self, meters: Meters) -> None:
        self.write_seconds = meters.histogram(
            "kakeya_worker_snapshot_write_seconds",
            'Snapshots copied, written and read back: "written", or "failed".',
            Label("outcome", ("written", "failed")),
            buckets=_FILE_SECONDS,
        )
        self.written_bytes = meters.counter(
            "kakeya_worker_snapshot_written_bytes_total", "Bytes of the snapshots that were written.", unit="bytes"
        )
        self.restore_seconds = meters.histogram(
            "kakeya_worker_restore_seconds",
            'Lanes restored from snapshots: "restored", or "failed".',
            Label("outcome", ("restored", "failed")),
            buckets=_FILE_SECONDS,
        )

    def count_step(
        self, seconds: float, num_generated: int, num_prefilled: int, num_rows: int, num_failed: int
    ) -> None:
        """One step; of its rows those that failed come apart."""
        self.step_seconds.observe(seconds)
        self.step_rows.observe(num_rows)
        self.generated_tokens.inc(num_generated)
        self.prefilled_tokens.inc(num_prefilled)
        if num_failed:
            self.failed_rows.inc(num_failed)

    def count_drafts(self, num_drafted: int, num_accepted: int, draft_seconds: float) -> None:
        """Of one step; the seconds are a draft model's."""
        self.draft_seconds.inc(draft_seconds)
        self.drafted_tokens.inc(num_drafted)
        self.accepted_tokens.inc(num_accepted)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Measures the writing of a snapshot inside."""
        began, outcome = perf_counter(), "failed"
        try:
            yield
            outcome = "written"
        finally:
            self.write_seconds.labels(outcome).observe(perf_counter() - began)

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Measures the restoring of a lane inside."""
        began, outcome = perf_counter(), "failed"
        try:
            yield
            outcome = "restored"
        finally:
            self.restore_seconds.labels(outcome).observe(perf_counter() - began)


def no_metrics() -> WorkerMetrics:
    """Of a part that stands by itself."""
    return WorkerMetrics(Meters(is_on=False))
