"""Which operations get how many tokens of the next step: plain integers, no arrays.

Every running Generate gets its one token; what is left of the step's budget goes to prefills, a chunk at most
each. Both kinds take turns, so nobody waits longer than a round: tenants first, then each tenant's sessions. Where
several tenants have work, `tenant_shares` says which of them run.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice, zip_longest
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
    """Round robin over tenants and their operations. A step costs time in proportion to the operations, once.

    Args:
        step_tokens: the budget of one step.
        chunk: C, the most tokens a row may bring.
    """

    def __init__(self, step_tokens: int, chunk: int) -> None:
        self.step_tokens = step_tokens
        self.chunk = chunk
        # Sets in the order of turns: who had the latest comes last.
        self._generates: dict[Generate, None] = {}
        self._appends: dict[Append, None] = {}
        self._shares = TenantShares()
        self._step = Step([], [])  # the latest
        self._loads: dict[str, Load] = {}  # by tenant, when it was planned

    def add(self, operation: Append | Generate) -> None:
        if isinstance(operation, Generate):
            self._generates[operation] = None
        else:
            self._appends[operation] = None

    def remove(self, operation: Append | Generate) -> None:
        if isinstance(operation, Generate):
            del self._generates[operation]
        else:
            del self._appends[operation]

    @property
    def operations(self) -> Iterable[Append | Generate]:
        return (*self._generates, *self._appends)

    @property
    def has_work(self) -> bool:
        return bool(self._appends) or any(not generate.is_paused for generate in self._generates)

    def next_step(self) -> Step:
        """A prefill always gets a chunk, however many sessions generate, and the other way round."""
        generates = _by_tenant(generate for generate in self._generates if not generate.is_paused)
        appends = _by_tenant(self._appends)
        self._loads = {
            tenant: self._load(generates.get(tenant, []), appends.get(tenant, [])) for tenant in generates | appends
        }
        chosen = self._shares.choose(self._loads)
        self._step = self._plan(_of(generates, chosen), _of(appends, chosen))
        _to_the_end(self._generates, self._step.generates)
        _to_the_end(self._appends, (append for append, _ in self._step.appends))
        return self._step

    def account(self, seconds: float, *, is_whole: bool = True) -> None:
        """Tells how long the latest step took, and whether all of it was forwarded."""
        self._shares.account(self._loads, self._step.num_tokens, seconds, is_whole=is_whole)

    def _load(self, generates: list[Generate], appends: list[Append]) -> Load:
        """Of one tenant: what `_plan` would make of these alone, in numbers."""
        num_generates = min(len(generates), self._max_generates(bool(appends)))
        budget = self.step_tokens - num_generates
        num_prefill_tokens = 0
        for append in appends:
            if num_prefill_tokens >= budget:
                break
            num_prefill_tokens += self._chunk_tokens(append)
        return Load(num_generates, min(num_prefill_tokens, budget))

    def _plan(self, generates: Mapping[str, list[Generate]], appends: Mapping[str, list[Append]]) -> Step:
        """A step of these, by tenant."""
        step = Step(list(islice(_in_turns(generates), self._max_generates(bool(appends)))), [])
        budget = self.step_tokens - len(step.generates)
        for append in _in_turns(appends):
            if budget <= 0:
                break
            num_tokens = min(self._chunk_tokens(append), budget)
            step.appends.append((append, num_tokens))
            budget -= num_tokens
        return step

    def _max_generates(self, has_appends: bool) -> int:
        """In a step that leaves room for a chunk where one is wanted."""
        reserve = min(self.chunk, self.step_tokens // 2) if has_appends else 0
        return max(1, self.step_tokens - reserve)

    def _chunk_tokens(self, append: Append) -> int:
        return min(self.chunk, len(append.token_ids) - append.num_done)


def _by_tenant(operations: Iterable[_O]) -> dict[str, list[_O]]:
    """First comes the tenant whose latest turn was first."""
    by_tenant: dict[str, list[_O]] = {}
    for operation in operations:
        # Taken out and put in again: the order is that of each tenant's last operation, which had the latest turn.
        of_tenant = by_tenant.pop(operation.tenant, [])
        of_tenant.append(operation)
        by_tenant[operation.tenant] = of_tenant
    return by_tenant


def _of(by_tenant: dict[str, list[_O]], tenants: Collection[str]) -> dict[str, list[_O]]:
    wanted = set(tenants)
    return {tenant: operations for tenant, operations in by_tenant.items() if tenant in wanted}


def _in_turns(by_tenant: Mapping[str, list[_O]]) -> Iterator[_O]:
    """One of each tenant, then the next of each."""
    rounds = zip_longest(*by_tenant.values())
    return (each for one_of_each in rounds for each in one_of_each if each is not None)


def _to_the_end(operations: dict[_O, None], taken: Iterable[_O]) -> None:
    """Who had a turn now has the next one last."""
    for operation in taken:
        del operations[operation]
        operations[operation] = None
