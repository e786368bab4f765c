"""How tenants share the steps: each gets at least its share of what it would do alone, company or not.

With k tenants at work each is entitled to 1/k of the time. A tenant that has a step for itself uses the time the step
took; one that shares a step uses no more than its own part of the work would have taken alone, which is known from
steps that one tenant had for itself. What it is entitled to less what it used is its lag: while a tenant lags, the
others wait. Steps are shared for nothing where company costs little, and taken in turns where each tenant's work costs
its full price. Nothing here models what work costs: it is measured. Like loads cost alike for all tenants, so what
one tenant's step told counts for all: with many tenants few steps are spent on measuring.

Plain numbers: no clock, no operations. Lags are what deficit round robin calls deficits (Shreedhar and Varghese 1995),
in seconds and with a price that is learned.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

MAX_LAG_SECONDS = 2.0  # a tenant may not save up time; a single step that took longer is made up for in full
PROBE_STEPS = 32  # of these shared steps one is given to a single tenant, so that measures stay true
NUM_SAMPLES = 4  # of a measure; the shortest counts, since whatever disturbs a step makes it longer
MAX_MEASURES = 1024  # sizes of load; more than there are for steps of up to 2^8 tokens and windows of up to 2^12
MAX_DRAFTS_PART = 0.5  # of a step's time that is put down to drafts, however much they were expected to add
_NO_DRAFTS: Mapping[str, float] = MappingProxyType({})
FORGET_SECONDS = 60.0  # of steps without a tenant, after which it is forgotten


class Load(NamedTuple):
    """What a tenant's operations would bring to a step for itself; the slots are summed over all tokens."""

    num_generates: int
    num_prefill_tokens: int
    num_visible_slots: int = 0

    @property
    def num_tokens(self) -> int:
        return self.num_generates + self.num_prefill_tokens

    @property
    def size(self) -> tuple[int, int, int]:
        """Loads of one size cost about the same: each number within a factor of two."""
        return (
            self.num_generates.bit_length(),
            self.num_prefill_tokens.bit_length(),
            self.num_visible_slots.bit_length(),
        )


@dataclass
class _Measure:
    """What loads of one size take alone.

    Attributes:
        token_seconds: of the latest steps with such a load alone, by its tokens: these vary up to twofold.
        step: number of the last such step.
    """

    token_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_SAMPLES))
    step: int = 0

    def seconds(self, num_tokens: int) -> float:
        """What so many tokens of the load take."""
        return min(self.token_seconds) * num_tokens


@dataclass
class _Tenant:
    """What is known of one.

    Attributes:
        lag_seconds: what it is entitled to, less what it used; negative where it is ahead.
        alone_step: number of the last step that it had for itself.
        seen_seconds: seconds of all steps when it was last at work.
    """

    lag_seconds: float = 0.0
    alone_step: int = 0
    seen_seconds: float = 0.0

    def owe(self, seconds: float, most_seconds: float) -> None:
        """Changes the lag; it grows no further than so."""
        self.lag_seconds = min(self.lag_seconds + seconds, max(self.lag_seconds, most_seconds))


class TenantShares:
    """Call `choose` and then `account` for each step."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._measures: dict[tuple[int, int, int], _Measure] = {}  # by size of load; the latest come last
        self._num_steps = 0
        self._num_shared_steps = 0  # since the last probe
        self._seconds = 0.0  # of all steps

    def choose(self, loads: Mapping[str, Load]) -> Collection[str]:
        """The tenants that run in the next step, of those that have work."""
        if len(loads) <= 1:
            return loads.keys()
        tenants = self._known(loads)
        lagging = self._lagging(loads)
        candidates = lagging or list(loads)
        if len(candidates) == 1:
            return candidates
        unknown_loads = {load for load in set(loads.values()) if load.size not in self._measures}
        if unknown := [name for name in candidates if loads[name] in unknown_loads]:
            return [max(unknown, key=lambda name: tenants[name].lag_seconds)]
        self._num_shared_steps += 1
        if self._num_shared_steps < PROBE_STEPS:
            return candidates
        self._num_shared_steps = 0
        return [min(candidates, key=lambda name: (self._measures[loads[name].size].step, tenants[name].alone_step))]

    def account(
        self,
        loads: Mapping[str, Load],
        num_tokens: Mapping[str, int],
        seconds: float,
        *,
        is_whole: bool = True,
        draft_seconds: Mapping[str, float] = _NO_DRAFTS,
    ) -> None:
        """Tells what a step was.

        Args:
            loads: as they were when the step was chosen.
            num_tokens: that the tenants in the step were to get.
            seconds: that it took.
            draft_seconds: what tenants' drafts are expected to have added, which is no part of a load.
            is_whole: they did get them all. What failed used its time too, but says nothing of what a load takes.
        """
        self._num_steps += 1
        self._seconds += seconds
        at_work = self._known(loads)
        drafts_part = min(1.0, MAX_DRAFTS_PART * seconds / max(sum(draft_seconds.values()), 1e-12))
        drafts = {name: drafts_part * of_tenant for name, of_tenant in draft_seconds.items()}
        loads_seconds = seconds - sum(drafts.values())
        used_seconds = self._used_seconds(loads, num_tokens, loads_seconds)
        used_seconds = {name: used + drafts.get(name, 0.0) for name, used in used_seconds.items()}
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
            at_work[alone].alone_step = self._num_steps
            # Alone it may be in a shared step too, with a part of its load: the others' did not fit.
            if is_whole and num_tokens[alone] == loads[alone].num_tokens:
                self._measure(loads[alone], loads_seconds)
        self._settle(loads)
        self._forget()

    def _known(self, names: Iterable[str]) -> dict[str, _Tenant]:
        for name in names:
            if name not in self._tenants:
                self._tenants[name] = _Tenant()
        return {name: self._tenants[name] for name in names}

    def _lagging(self, loads: Mapping[str, Load]) -> list[str]:
        """By over a step of their own: below that, company that costs little may still make up for it."""
        own_seconds = {load: self._seconds_alone(load) for load in set(loads.values())}
        return [name for name, load in loads.items() if self._tenants[name].lag_seconds > own_seconds[load]]

    def _seconds_alone(self, load: Load) -> float:
        """0 where nothing is known of it."""
        measure = self._measures.get(load.size)
        return measure.seconds(load.num_tokens) if measure else 0.0

    def _measure(self, load: Load, seconds: float) -> None:
        measure = self._measures.pop(load.size, None) or _Measure()
        measure.token_seconds.append(seconds / load.num_tokens)
        measure.step = self._num_steps
        self._measures[load.size] = measure
        if len(self._measures) > MAX_MEASURES:
            del self._measures[next(iter(self._measures))]

    def _used_seconds(
        self, loads: Mapping[str, Load], num_tokens: Mapping[str, int], seconds: float
    ) -> dict[str, float]:
        """Of a step by the tenants in it: what their parts take alone, or more where the step took longer than that."""
        if len(num_tokens) == 1:
            return dict.fromkeys(num_tokens, seconds)
        alone = {name: self._measures[loads[name].size].seconds(num) for name, num in num_tokens.items()}
        stretch = max(1.0, seconds / sum(alone.values()))
        return {name: min(seconds, stretch * part_seconds) for name, part_seconds in alone.items()}

    def _settle(self, loads: Mapping[str, Load]) -> None:
        """While nobody lags, who is ahead owes nothing."""
        if not self._lagging(loads):
            for tenant in self._tenants.values():
                tenant.lag_seconds = max(tenant.lag_seconds, 0.0)

    def _forget(self) -> None:
        for name, tenant in list(self._tenants.items()):
            if self._seconds - tenant.seen_seconds > FORGET_SECONDS:
                del self._tenants[name]
