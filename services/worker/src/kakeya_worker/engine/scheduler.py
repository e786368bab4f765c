"""Which operations get how many tokens of the next step: plain integers, no arrays.

Every running Generate gets its one token; what is left of the step's budget goes to prefills, a chunk at most
each. Both kinds take turns, so nobody waits longer than a round: tenants first, then each tenant's sessions. Where
several tenants have work, `tenant_shares` says which of them run.
"""

from collections import Counter, deque
from collections.abc import Container, Iterable
from itertools import zip_longest
from typing import NamedTuple, TypeVar

from kakeya_worker.engine.operation import Append, Generate
from kakeya_worker.engine.tenant_shares import Load, TenantShares

_O = TypeVar("_O", Append, Generate)


class Step(NamedTuple):
    """The generates that get a token, and the appends with their numbers of tokens."""

    generates: list[Generate]
    appends: list[tuple[Append, int]]

    @property
    def load(self) -> Load:
        return Load(len(self.generates), sum(num_tokens for _, num_tokens in self.appends))

    @property
    def num_tokens(self) -> Counter[str]:
        """By tenant."""
        counts = Counter(generate.tenant for generate in self.generates)
        for append, num_tokens in self.appends:
            counts[append.tenant] += num_tokens
        return counts


class Scheduler:
    """Round robin over tenants and their operations.

    Args:
        step_tokens: the budget of one step.
        chunk: C, the most tokens a row may bring.
    """

    def __init__(self, step_tokens: int, chunk: int) -> None:
        self.step_tokens = step_tokens
        self.chunk = chunk
        self._generates: deque[Generate] = deque()
        self._appends: deque[Append] = deque()
        self._shares = TenantShares()
        self._step = Step([], [])  # the latest
        self._loads: dict[str, Load] = {}  # by tenant, when it was planned

    def add(self, operation: Append | Generate) -> None:
        if isinstance(operation, Generate):
            self._generates.append(operation)
        else:
            self._appends.append(operation)

    def remove(self, operation: Append | Generate) -> None:
        if isinstance(operation, Generate):
            self._generates.remove(operation)
        else:
            self._appends.remove(operation)

    @property
    def operations(self) -> Iterable[Append | Generate]:
        return (*self._generates, *self._appends)

    @property
    def has_work(self) -> bool:
        return bool(self._appends) or any(not generate.is_paused for generate in self._generates)

    def next_step(self) -> Step:
        """A prefill always gets a chunk, however many sessions generate, and the other way round."""
        generates = [generate for generate in self._generates if not generate.is_paused]
        appends = list(self._appends)
        tenants = {operation.tenant: None for operation in (*generates, *appends)}  # in the order of their operations
        alone = {tenant: self._plan(_of(generates, {tenant}), _of(appends, {tenant})) for tenant in tenants}
        self._loads = {tenant: step.load for tenant, step in alone.items()}
        chosen = self._shares.choose(self._loads)
        if len(chosen) == 1:
            self._step = alone[next(iter(chosen))]
        else:
            self._step = self._plan(_of(generates, chosen), _of(appends, chosen))
        _to_the_end(self._generates, self._step.generates)
        _to_the_end(self._appends, [append for append, _ in self._step.appends])
        return self._step

    def account(self, seconds: float) -> None:
        """Tells how long the latest step took."""
        self._shares.account(self._loads, self._step.num_tokens, seconds)

    def _plan(self, generates: list[Generate], appends: list[Append]) -> Step:
        """A step of these alone."""
        reserve = min(self.chunk, self.step_tokens // 2) if appends else 0
        step = Step(_in_turns(generates)[: max(1, self.step_tokens - reserve)], [])
        budget = self.step_tokens - len(step.generates)
        for append in _in_turns(appends):
            if budget <= 0:
                break
            num_tokens = min(self.chunk, budget, len(append.token_ids) - append.num_done)
            step.appends.append((append, num_tokens))
            budget -= num_tokens
        return step


def _of(operations: Iterable[_O], tenants: Container[str]) -> list[_O]:
    return [operation for operation in operations if operation.tenant in tenants]


def _in_turns(operations: list[_O]) -> list[_O]:
    """One of each tenant, then the next of each. First comes the tenant whose latest turn was first."""
    by_tenant: dict[str, list[_O]] = {}
    for operation in operations:
        # Taken out and put in again: the order is that of each tenant's last operation, which had the latest turn.
        of_tenant = by_tenant.pop(operation.tenant, [])
        of_tenant.append(operation)
        by_tenant[operation.tenant] = of_tenant
    rounds = zip_longest(*by_tenant.values())
    return [each for one_of_each in rounds for each in one_of_each if each is not None]


def _to_the_end(operations: deque[_O], taken: list[_O]) -> None:
    """Who had a turn now has the next one last."""
    for operation in taken:
        operations.remove(operation)
        operations.append(operation)
