"""What a router counts and measures. Gauges of the whole runtime are `kakeya_router.workers.fleet_gauges`.

Counters are this router's own: the sum over all routers is the runtime's.
"""

from kakeya_shared.metrics.meters import Buckets, Label, Meters

PREFIX = "kakeya_router"

# Those that OpenTelemetry's GenAI conventions advise for a server.
FIRST_TOKEN_SECONDS = Buckets(
    (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    "those that OpenTelemetry's GenAI conventions advise",
)
TOKEN_SECONDS = Buckets(
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    "those that OpenTelemetry's GenAI conventions advise, and three below for small models",
)
REDIS_SECONDS = Buckets(
    (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0),
    "a script takes some tenths of a millisecond, a sync of a disk some; 2 s are near the time-out",
)
LANE_SECONDS = Buckets(
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    "a small lane takes milliseconds, a worker that hangs is given up after seconds, a store after a minute",
)
WAIT_SECONDS = Buckets(
    (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 300.0),
    "a call waits for 30 s unless configured; half a minute is where people leave",
)
JOURNAL_SECONDS = Buckets(
    (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5),
    "a group is written after 50 ms at the latest; what is above 0.1 s Redis has held up",
)


MAX_TENANTS = 100
"""That have label values of their own: a few hundred series at the most, whatever number of tenants there is."""

OTHERS = "(others)"
"""No tenant is called so: names have no brackets."""


class TenantLabels:
    """Tenants as label values: those that are seen first have one of their own, all others share one."""

    def __init__(self, max_tenants: int = MAX_TENANTS) -> None:
        self._max_tenants = max_tenants
        self._known: set[str] = set()

    def label(self, tenant: str) -> str:
        """The same at each time, as a counter needs it."""
        if tenant not in self._known:
            if len(self._known) >= self._max_tenants:
                return OTHERS
            self._known.add(tenant)
        return tenant


class RouterMetrics:
    """Counts what happens at this router.

    Attributes:
        tenants: the labels of all meters that name tenants.
    """

    def __init__(self, meters: Meters) -> None:
        self.meters = meters
        self.tenants = TenantLabels()
        self._declare_tokens(meters)
        self._declare_lanes(meters)
        self._declare_rest(meters)

    def _declare_tokens(self, meters: Meters) -> None:
        self.appended_tokens = meters.counter(
            "kakeya_router_appended_tokens_total", "Tokens that appends have added to histories.", unit="tokens"
        )
        self.generated_tokens = meters.counter(
            "kakeya_router_generated_tokens_total", "Tokens that were generated and relayed.", unit="tokens"
        )
        self._tenant_tokens = meters.counter(
            "kakeya_router_tenant_tokens_total",
            f'Tokens of each tenant, "appended" and "generated"; tenants after the first {MAX_TENANTS} are "{OTHERS}".',
            "tenant",
            "kind",
            unit="tokens",
        )
        self.first_token_seconds = meters.histogram(
            "kakeya_router_time_to_first_token_seconds",
            "From a Generate's or a Turn's coming in to its first token: waits for a lane and a Turn's own prefill "
            "are in it.",
            buckets=FIRST_TOKEN_SECONDS,
        )
        self.token_seconds = meters.histogram(
            "kakeya_router_time_per_output_token_seconds",
            "Of an answer's tokens but the first, on average.",
            buckets=TOKEN_SECONDS,
        )
        self.journal_groups = meters.counter(
            "kakeya_router_journal_groups_total", "Groups of generated tokens that were written to the journal."
        )
        self.journal_lag_seconds = meters.histogram(
            "kakeya_router_journal_lag_seconds",
            "From a group's first token to its being in Redis.",
            buckets=JOURNAL_SECONDS,
        )

    def _declare_lanes(self, meters: Meters) -> None:
        self.queue_wait_seconds = meters.histogram(
            "kakeya_router_queue_wait_seconds",
            'Waits for a lane that are over: with one ("lane"), or without ("none"), as the call was refused, was too '
            "late, or has left.",
            Label("got", ("lane", "none")),
            buckets=WAIT_SECONDS,
        )
        self.park_seconds = meters.histogram(
            "kakeya_router_park_seconds",
            'Sessions parked, by why: "request" of a client, "drain" of a worker, "room" for another session, or '
            '"idle" for as long as its client has allowed. The time is that of the snapshot before it, mostly.',
            Label("reason", ("request", "drain", "room", "idle")),
            buckets=LANE_SECONDS,
        )
        self.resume_seconds = meters.histogram(
            "kakeya_router_resume_seconds",
            'Sessions given a lane that had none, by why: "parked", or "recovery" in the middle of an operation.',
            Label("reason", ("parked", "recovery")),
            buckets=LANE_SECONDS,
        )
        self.recovery_seconds = meters.histogram(
            "kakeya_router_recovery_seconds",
            'Operations that had lost their lane and went on, by why: "worker" lost, "drain" of a worker, "lane" gone '
            'or not as on record, or what an earlier operation had left "unfinished". The time is the client\'s pause.',
            Label("reason", ("worker", "drain", "lane", "unfinished")),
            buckets=LANE_SECONDS,
        )
        self.move_seconds = meters.histogram(
            "kakeya_router_move_seconds",
            'Sessions moved to another worker ("moved"), and attempts that left them where they were ("kept").',
            Label("outcome", ("moved", "kept")),
            buckets=LANE_SECONDS,
        )
        self.snapshot_seconds = meters.histogram(
            "kakeya_router_snapshot_seconds",
            'Snapshots that workers were asked to write: "written", or "failed".',
            Label("outcome", ("written", "failed")),
            buckets=LANE_SECONDS,
        )

    def _declare_rest(self, meters: Meters) -> None:
        self.opened_sessions = meters.counter(
            "kakeya_router_opened_sessions_total",
            'Sessions that were made, "new" or as a "fork" of another.',
            Label("kind", ("new", "fork")),
        )
        self.lost_workers = meters.counter("kakeya_router_lost_workers_total", "Workers whose lease has lapsed.")
        self.lost_sessions = meters.counter(
            "kakeya_router_lost_sessions_total", "Sessions whose history is nowhere any more."
        )
        self.expired_sessions = meters.counter(
            "kakeya_router_expired_sessions_total", "Sessions that were closed since their time had come."
        )
        self.taken_over_operations = meters.counter(
            "kakeya_router_taken_over_operations_total", "Operations of routers that had vanished, ended by this one."
        )
        self.invariant_violations = meters.counter(
            "kakeya_router_invariant_violations_total",
            "Sessions that have failed since their lane did not hold what it must, by invariant.",
            Label("invariant", ("inv1", "inv2")),
        )
        self.tunnels = meters.gauge("kakeya_router_tunnels", "Tunnels of workers that end at this router now.")
        self.redis_seconds = meters.histogram(
            "kakeya_router_redis_seconds",
            "Calls of Redis, from asking to the answer; several commands in one round trip are one.",
            buckets=REDIS_SECONDS,
        )
        self.redis_failures = meters.counter(
            "kakeya_router_redis_failures_total", "Calls of Redis that it did not answer, or refused to take."
        )

    def count_appended(self, tenant: str, num_tokens: int) -> None:
        self.appended_tokens.inc(num_tokens)
        if tenant:
            self._tenant_tokens.labels(self.tenants.label(tenant), "appended").inc(num_tokens)

    def count_generated(self, tenant: str, num_tokens: int) -> None:
        self.generated_tokens.inc(num_tokens)
        if tenant:
            self._tenant_tokens.labels(self.tenants.label(tenant), "generated").inc(num_tokens)


def no_metrics() -> RouterMetrics:
    """Of a part that stands by itself."""
    return RouterMetrics(Meters(is_on=False))
