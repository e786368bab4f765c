"""Which operations get how many tokens of the next step: plain integers, no arrays.

Every running Generate gets its one token; what is left of the step's budget goes to prefills, a chunk at most
each. Both kinds take turns, so nobody waits longer than a round.
"""

from collections import deque
from collections.abc import Iterable

from kakeya_worker.engine.operation import Append, Generate


class Scheduler:
    """Round robin over operations.

    Args:
        step_tokens: the budget of one step.
        chunk: C, the most tokens a row may bring.
    """

    def __init__(self, step_tokens: int, chunk: int) -> None:
        self.step_tokens = step_tokens
        self.chunk = chunk
        self._generates: deque[Generate] = deque()
        self._appends: deque[Append] = deque()

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

    def next_step(self) -> tuple[list[Generate], list[tuple[Append, int]]]:
        """The generates that get a token, and the appends with their numbers of tokens.

        A prefill always gets a chunk, however many sessions generate, and the other way round.
        """
        reserve = min(self.chunk, self.step_tokens // 2) if self._appends else 0
        generates = _take(self._generates, max(1, self.step_tokens - reserve))
        budget = self.step_tokens - len(generates)
        appends = []
        for append in list(self._appends):
            if budget <= 0:
                break
            num_tokens = min(self.chunk, budget, len(append.token_ids) - append.num_done)
            appends.append((append, num_tokens))
            budget -= num_tokens
            self._appends.rotate(-1)
        return generates, appends


def _take(generates: deque[Generate], limit: int) -> list[Generate]:
    """Up to `limit` generates that are not paused, first come first; those taken go to the end."""
    taken = [generate for generate in generates if not generate.is_paused][:limit]
    for generate in taken:
        generates.remove(generate)
        generates.append(generate)
    return taken
