"""A worker without a model: the real scheduler, its operations, and steps that take what a formula says."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.sampling.sampling import Sampling
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.steps.scheduler import Scheduler, Step, StepBudget

STEP_TOKENS, CHUNK = 128, 32
ENDLESS = 10**6  # tokens
_ENDLESSLY_MANY = (1,) * ENDLESS
Cost = Callable[[Step], float]
"""Seconds that a step takes."""
Operations = Iterator[Append | Generate | float]
"""What a session does, one after another; a number is so many seconds of nothing."""


def new_append(num_tokens: int, tenant: str = "", *, window: int = 64, length: int = 0) -> Append:
    append = Append("s", 1, 0, _ENDLESSLY_MANY[:num_tokens])
    append.begin(_lane(window, length), tenant)
    return append


def new_generate(tenant: str = "", max_tokens: int = ENDLESS, *, window: int = 64, length: int = 0) -> Generate:
    generate = Generate(
        "s",
        1,
        0,
        max_tokens=max_tokens,
        eos_token_ids=frozenset(),
        sampling=Sampling(),
        on_token=lambda *_: None,
    )
    generate.begin(_lane(window, length), tenant)
    return generate


def _lane(window: int, length: int) -> Lane:
    geometry = LaneGeometry(sink=0, window=window, chunk=CHUNK)
    return Lane(geometry, 0, sink_window(SessionOptions(), geometry), length=length)


@cache
def linear(fixed_seconds: float, token_seconds: float) -> Cost:
    """Memory-bound where the first counts, compute-bound where the second does."""
    return lambda step: fixed_seconds + token_seconds * step.load.num_tokens


def by_slots(fixed_seconds: float, slot_seconds: float) -> Cost:
    """Bound by attention."""
    return lambda step: fixed_seconds + slot_seconds * step.num_visible_slots


def noisy(cost: Cost, seed: int) -> Cost:
    """Every step takes longer by chance, a fifth on average."""
    chance = random.Random(seed)
    return lambda step: cost(step) * (1 + 0.2 * chance.expovariate(1))


@dataclass(frozen=True)
class Tenant:
    """Its sessions: so many that generate for ever, that append for ever, that take turns, and that come and go.

    A turn is an append of 50 tokens and a generate of 20. Who comes appends a chunk, all in one step, and goes. Full
    ones append for ever and see a long window.
    """

    name: str
    num_generating: int = 0
    num_appending: int = 0
    num_conversing: int = 0
    num_coming: int = 0
    num_full: int = 0

    def sessions(self, owner: str) -> Iterator[Operations]:
        yield from (iter([new_generate(owner)]) for _ in range(self.num_generating))
        yield from (iter([new_append(ENDLESS, owner)]) for _ in range(self.num_appending))
        yield from (iter([new_append(ENDLESS, owner, window=4096, length=5000)]) for _ in range(self.num_full))
        yield from (_conversation(owner) for _ in range(self.num_conversing))
        yield from (_coming_and_going(owner) for _ in range(self.num_coming))


def _conversation(owner: str) -> Operations:
    while True:
        yield new_append(50, owner)
        yield new_generate(owner, max_tokens=20)


def _coming_and_going(owner: str) -> Operations:
    while True:
        yield new_append(CHUNK, owner)
        yield 1e-6


@dataclass
class Simulation:
    """Attributes:
    is_fair: whether the scheduler is told whose a session is.
    seconds: so far.
    num_tokens: that each tenant's sessions got.
    """

    cost: Cost
    is_fair: bool = True
    seconds: float = 0.0
    num_tokens: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(StepBudget(STEP_TOKENS), CHUNK)
        self._running: dict[Append | Generate, tuple[str, Operations]] = {}
        self._away: list[tuple[float, str, Operations]] = []  # and when each comes back

    def enter(self, *tenants: Tenant) -> None:
        for tenant in tenants:
            for session in tenant.sessions(tenant.name if self.is_fair else ""):
                self._go_on(tenant.name, session)

    def leave(self, tenant: Tenant) -> None:
        for operation, (name, _) in list(self._running.items()):
            if name == tenant.name:
                self._end(operation)

    def run(self, seconds: float) -> None:
        ends = self.seconds + seconds
        while self.seconds < ends:
            self.step()

    def step(self) -> Step:
        self._come_back()
        step = self.scheduler.next_step()
        seconds = self.cost(step)
        self.seconds += seconds
        for generate in step.generates:
            generate.num_generated += 1
            generate.num_read += 1
            self._got(generate, 1, is_complete=generate.num_generated == generate.max_tokens)
        for append, num_tokens in step.appends:
            append.num_done += num_tokens
            self._got(append, num_tokens, is_complete=append.is_complete)
        self.scheduler.account(seconds)
        return step

    def _come_back(self) -> None:
        if not self.scheduler.has_work:
            self.seconds = max(self.seconds, min(comes_back for comes_back, _, _ in self._away))
        due = [(name, session) for comes_back, name, session in self._away if comes_back <= self.seconds]
        self._away = [away for away in self._away if away[0] > self.seconds]
        for name, session in due:
            self._go_on(name, session)

    def _got(self, operation: Append | Generate, num_tokens: int, is_complete: bool) -> None:
        name, session = self._running[operation]
        self.num_tokens[name] += num_tokens
        if is_complete:
            self._end(operation)
            self._go_on(name, session)

    def _go_on(self, name: str, session: Operations) -> None:
        operation = next(session, None)
        if isinstance(operation, float):
            self._away.append((self.seconds + operation, name, session))
        elif operation is not None:
            self._running[operation] = name, session
            self.scheduler.add(operation)

    def _end(self, operation: Append | Generate) -> None:
        del self._running[operation]
        self.scheduler.remove(operation)


def rates(cost: Cost, tenants: list[Tenant], seconds: float, *, is_fair: bool = True) -> dict[str, float]:
    """Tokens a second of each tenant."""
    simulation = Simulation(cost, is_fair)
    simulation.enter(*tenants)
    simulation.run(seconds)
    return {tenant.name: simulation.num_tokens[tenant.name] / simulation.seconds for tenant in tenants}
