"""What one Generate may choose next: a mask for each token, made while the forward pass of the one before runs.

A mask is a function of the grammar, the vocabulary, the library's version and the tokens of the Generate alone. The
library counts its effort and gives up beyond its limits; what it has found out for one answer it keeps for others of
the same grammar. Where it gives up, the answer is replayed by a new matcher first.
"""

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from kakeya_worker.grammars.allowed import Allowed
from kakeya_worker.grammars.grammar import Grammar
from kakeya_worker.grammars.vocabulary import Vocabulary
from kakeya_worker.host.daemon_threads import DaemonThreads

_WORD_BITS = 32


class Constraint:
    """Used by one thread at a time: `allowed`, then `advance` with the token that was chosen, and so on.

    Args:
        matcher: at the grammar's beginning, its own.
        new_matcher: makes one that has learned nothing from other answers; raises InvalidField.
        eos_token_ids: those of the vocabulary, at least one; they may come where the grammar accepts.
        threads: do the work.
    """

    def __init__(
        self,
        grammar: Grammar,
        vocabulary: Vocabulary,
        matcher: LLMatcher,
        new_matcher: Callable[[], LLMatcher],
        eos_token_ids: Collection[int],
        threads: DaemonThreads,
    ) -> None:
        self._grammar = grammar
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._new_matcher = new_matcher
        self._eos_token_ids = np.fromiter(eos_token_ids, np.int64)
        self._threads = threads
        self._token_ids: list[int] = []
        self._num_words = -(-vocabulary.num_ids // _WORD_BITS)
        self._next: Future[Allowed] = Future()

    def begin(self, token_ids: Iterable[int]) -> None:
        """Replays what was produced elsewhere, here and now. Raises InvalidField: it is not of the grammar."""
        eos = set(self._eos_token_ids.tolist())
        allowed = self._mask()
        for token_id in token_ids:
            if allowed.token_ids is not None and not allowed.token_ids[token_id]:
                raise self._grammar.refused("the tokens so far are not of this grammar")
            if token_id in eos:
                break  # it has ended with it
            allowed = self._after(token_id)
        self._next.set_result(allowed)

    @property
    def is_ready(self) -> bool:
        """Whether `allowed` need not wait."""
        return self._next.done()

    def wait(self, timeout_seconds: float) -> None:
        """Until it is ready, or so long."""
        if not self._next.done():
            _wait(self._next, timeout_seconds)

    def allowed(self) -> Allowed:
        """Waits for it. Raises InvalidField: the grammar is more than the library's limits let it do."""
        return self._next.result()

    def advance(self, token_id: int) -> None:
        """A token was chosen that does not end the answer; what may come after it is found out beside the caller."""
        self._next = self._threads.submit(lambda: self._after(token_id))

    def _after(self, token_id: int) -> Allowed:
        self._token_ids.append(token_id)
        if self._matcher.consume_token(token_id):
            return self._mask()
        return self._replayed()

    def _mask(self) -> Allowed:
        words = np.empty(self._num_words, np.int32)
        self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if self._matcher.is_error():
            return self._replayed()
        return self._of(words)

    def _replayed(self) -> Allowed:
        """As if there had been no other answer. Raises InvalidField."""
        self._matcher = matcher = self._new_matcher()
        words = np.empty(self._num_words, np.int32)
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        for token_id in self._token_ids:
            # With each mask on the way: what the library gives up at depends on what it was asked.
            matcher.consume_token(token_id)
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if matcher.is_error():
            raise self._grammar.refused(matcher.get_error() or "is more than this worker does")
        return self._of(words)

    def _of(self, words: NDArray[np.int32]) -> Allowed:
        """A mask of the library as it is used here. Raises InvalidField."""
        vocabulary = self._vocabulary
        bits = np.unpackbits(words.view(np.uint8), bitorder="little").view(np.bool_)
        accepts = bool(bits[vocabulary.end_id])
        bits[vocabulary.end_id] = False
        token_ids = bits[: vocabulary.size]
        token_ids[self._eos_token_ids] = False
        ends_only = not token_ids.any()
        if ends_only and not accepts:
            raise self._grammar.refused("no token of the model's goes on with it")
        token_ids[self._eos_token_ids] = accepts
        return Allowed(token_ids, ends_only)


def _wait(future: "Future[Allowed]", timeout_seconds: float) -> None:
    try:
        future.exception(timeout_seconds)
    except TimeoutError:
        return
