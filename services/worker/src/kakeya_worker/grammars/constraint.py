"""What one Generate may choose next: a mask for each token, made while the forward pass of the one before runs.

A mask is a function of the grammar, the vocabulary, the library's version and the tokens of the Generate alone. The
library counts its effort and gives up beyond its limits; what it has found out for one answer it keeps for others of
the same grammar. Where it gives up, the answer is replayed by a new matcher first.

Masks behind drafts are made meanwhile, too, in one call of the library, which then takes the drafts back.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import takewhile
from typing import Any, TypeVar

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.grammars.allowed import Allowed
from kakeya_worker.grammars.grammar import Grammar
from kakeya_worker.grammars.vocabulary import Vocabulary
from kakeya_worker.host.daemon_threads import DaemonThreads

_WORD_BITS = 32
_Foreseen = Sequence[tuple[int, Allowed]]
"""Drafts, one behind the other, and what may come after each."""
_NOTHING: _Foreseen = ()
_T = TypeVar("_T")


class Constraint:
    """Used by one thread at a time: `allowed`, then `advance` with the token that was chosen, and so on.

    What the matcher has been told lags behind that by `_chosen`, tokens behind which the masks were known before.

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
        self._foreseen = _ready(_NOTHING)
        self._num_taken = 0  # of those
        self._chosen: list[int] = []

    def begin(self, token_ids: Iterable[int]) -> None:
        """Replays what was produced elsewhere, here and now. Raises InvalidField: it is not of the grammar."""
        eos = set(self._eos_token_ids.tolist())
        allowed = self._mask()
        for token_id in token_ids:
            if allowed.token_ids is not None and not allowed.token_ids[token_id]:
                raise self._grammar.refused("the tokens so far are not of this grammar")
            if token_id in eos:
                break  # it has ended with it
            allowed = self._after([token_id])
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
        self._chosen.append(token_id)
        foreseen = self._foreseen.result() if self._foreseen.done() else _NOTHING
        if self._num_taken < len(foreseen) and foreseen[self._num_taken][0] == token_id:
            self._next = _ready(foreseen[self._num_taken][1])
            self._num_taken += 1
            return
        before, chosen = self._foreseen, self._take_chosen()
        self._next = self._threads.submit(lambda: self._after(chosen, before))

    def foresee(self, token_ids: Sequence[int]) -> None:
        """These may be chosen next: what may come after each of them is found out beside the caller."""
        before, chosen = self._next, self._take_chosen()
        self._foreseen = self._threads.submit(lambda: self._behind(token_ids, chosen, before))

    def _take_chosen(self) -> list[int]:
        """For the matcher to be told, and nothing is foreseen any more."""
        chosen, self._chosen = self._chosen, []
        self._foreseen, self._num_taken = _ready(_NOTHING), 0
        return chosen

    def _after(self, chosen: Sequence[int], before: "Future[Any] | None" = None) -> Allowed:
        """Once what comes before is done: the matcher is one thread's at a time."""
        if before is not None:
            before.exception()
        self._token_ids += chosen
        if self._matcher.consume_tokens(list(chosen)):
            return self._mask()
        return self._replayed()

    def _behind(self, token_ids: Sequence[int], chosen: Sequence[int], before: "Future[Any]") -> _Foreseen:
        """Masks behind each of these, as far as they may come.

        Fewer where something is amiss: `_after` meets it again, and has the answer replayed or refused.
        """
        before.exception()
        self._token_ids += chosen
        ends = {*self._eos_token_ids.tolist(), self._vocabulary.end_id}
        goes_on = list(takewhile(lambda token_id: token_id not in ends, token_ids))
        self._matcher.consume_tokens(list(chosen))
        goes_on = goes_on[: self._matcher.validate_tokens(goes_on)]
        words = np.empty((1 + len(goes_on), self._num_words), np.int32)
        self._matcher.unsafe_compute_mask_ptr_with_draft_token(  # type: ignore[attr-defined]  # not in its stub
            words.ctypes.data, words[0].nbytes, goes_on
        )
        foreseen: list[tuple[int, Allowed]] = []
        with suppress(InvalidField):
            if not self._matcher.is_error():
                foreseen.extend((token_id, self._of(mask)) for token_id, mask in zip(goes_on, words[1:], strict=True))
        return foreseen

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


def _ready(result: _T) -> "Future[_T]":
    future: Future[_T] = Future()
    future.set_result(result)
    return future


def _wait(future: "Future[Allowed]", timeout_seconds: float) -> None:
    try:
        future.exception(timeout_seconds)
    except TimeoutError:
        return
