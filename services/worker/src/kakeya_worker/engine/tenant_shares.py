"""How tenants share the steps: each gets at least its share of what it would do alone, company or not.

With k tenants at work each is entitled to 1/k of the time. A tenant that has a step for itself uses the time the step
took; one that shares a step uses no more than its own part of the work would have taken alone, which is known from
the steps that it had for itself. What it is entitled to less what it used is its lag: while somebody lags, the others
wait. Steps are shared for nothing where company costs little, and taken in turns where each tenant's work costs its
full price. Nothing here models what work costs: it is measured.

Plain numbers: no clock, no operations. Lags are what deficit round robin calls deficits (Shreedhar and Varghese 1995),
in seconds and with a price that is learned.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

MAX_LAG_SECONDS = 2.0  # a tenant may not save up time; a single step that took longer is made up for in full
PROBE_STEPS = 32  # of these shared steps one is given to a single tenant, so that its measures stay true
NUM_SAMPLES = 4  # of a measure; the shortest counts, since whatever disturbs a step makes it longer
FORGET_SECONDS = 60.0  # of steps without a tenant, after which it is forgotten


@dataclass(frozen=True)
class Load:
    """What a tenant's operations would bring to a step for itself."""

    num_generates: int
    num_prefill_tokens: int

    @property
    def num_tokens(self) -> int:
        return self.num_generates + self.num_prefill_tokens

    @property
    def size(self) -> tuple[int, int]:
        """Loads of one size cost about the same: each number within a factor of two."""
        return self.num_generates.bit_length(), self.num_prefill_tokens.bit_length()


@dataclass
class _Tenant:
    """What is known of one.

    Attributes:
        lag_seconds: what it is entitled to, less what it used; negative where it is ahead.
        alone_seconds: latest durations of steps for itself, by the size of its load.
        alone_step: number of the last step that it had for itself.
        seen_seconds: seconds of all steps when it was last at work.
    """

    lag_seconds: float = 0.0
    alone_seconds: dict[tuple[int, int], deque[float]] = field(default_factory=dict)
    alone_step: int = 0
    seen_seconds: float = 0.0

    def lags(self, load: Load) -> bool:
        """By over a step of its own: below that, company that costs little may still make up for it."""
        return self.lag_seconds > min(self.alone_seconds.get(load.size, (0.0,)))

    def owe(self, seconds: float, most_seconds: float) -> None:
        """Changes the lag; it grows no further than so."""
        self.lag_seconds = min(self.lag_seconds + seconds, max(self.lag_seconds, most_seconds))

    def part_seconds(self, load: Load, num_tokens: int) -> float:
        """What so many tokens of its load take alone; the load was measured."""
        return min(self.alone_seconds[load.size]) * num_tokens / load.num_tokens

    def measure(self, load: Load, seconds: float) -> None:
        self.alone_seconds.setdefault(load.size, deque(maxlen=NUM_SAMPLES)).append(seconds)


class TenantShares:
    """Call `choose` and then `account` for each step."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._num_steps = 0
        self._num_shared_steps = 0  # since the last probe
        self._seconds = 0.0  # of all steps

    def choose(self, loads: Mapping[str, Load]) -> Collection[str]:
        """The tenants that run in the next step, of those that have work."""
        if len(loads) <= 1:
            return loads.keys()
        tenants = {name: self._tenants.setdefault(name, _Tenant()) for name in loads}
        lagging = [name for name in loads if tenants[name].lags(loads[name])]
        candidates = lagging or list(loads)
        if len(candidates) == 1:
            return candidates
        unknown = [name for name in candidates if loads[name].size not in tenants[name].alone_seconds]
        if unknown:
            return [max(unknown, key=lambda name: tenants[name].lag_seconds)]
        self._num_shared_steps += 1
        if self._num_shared_steps < PROBE_STEPS:
            return candidates
        self._num_shared_steps = 0
        return [min(candidates, key=lambda name: tenants[name].alone_step)]

    def account(self, loads: Mapping[str, Load], num_tokens: Mapping[str, int], seconds: float) -> None:
        """Tells what a step was.

        Args:
            loads: as they were when the step was chosen.
            num_tokens: that the tenants in the step got.
            seconds: that it took.
        """
        self._num_steps += 1
        self._seconds += seconds
        at_work = {name: self._tenants.setdefault(name, _Tenant()) for name in loads}
        used_seconds = self._used_seconds(loads, num_tokens, seconds)
        # Who is ahead and went away still waits for the others: nobody gets more by coming and going.
        away = [tenant for name, tenant in self._tenants.items() if name not in loads and tenant.lag_seconds < 0.0]
        share_seconds = seconds / (len(at_work) + len(away))
        for tenant in away:
            tenant.lag_seconds += share_seconds
        for name, tenant in at_work.items():
            tenant.seen_seconds = self._seconds
            tenant.owe(share_seconds - used_seconds.get(name, 0.0), max(MAX_LAG_SECONDS, seconds))
        if len(num_tokens) == 1:
            (alone,) = num_tokens
            at_work[alone].measure(loads[alone], seconds)
            at_work[alone].alone_step = self._num_steps
        self._settle(loads)
        self._forget()

    def _used_seconds(
        self, loads: Mapping[str, Load], num_tokens: Mapping[str, int], seconds: float
    ) -> dict[str, float]:
        """Of a step by the tenants in it: what their parts take alone, or more where the step took longer than that."""
        if len(num_tokens) == 1:
            return dict.fromkeys(num_tokens, seconds)
        alone = {name: self._tenants[name].part_seconds(loads[name], num) for name, num in num_tokens.items()}
        stretch = max(1.0, seconds / sum(alone.values()))
        return {name: min(seconds, stretch * part_seconds) for name, part_seconds in alone.items()}

    def _settle(self, loads: Mapping[str, Load]) -> None:
        """While nobody lags, who is ahead owes nothing."""
        if not any(self._tenants[name].lags(load) for name, load in loads.items()):
            for tenant in self._tenants.values():
                tenant.lag_seconds = max(tenant.lag_seconds, 0.0)

    def _forget(self) -> None:
        for name, tenant in list(self._tenants.items()):
            if self._seconds - tenant.seen_seconds > FORGET_SECONDS:
                del self._tenants[name]
