"""The grammars of a worker: compiled once for those who ask for the same, by threads of their own."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Lock

import structlog
from llguidance import LLMatcher, LLParserLimits

from kakeya_worker.grammars.constraint import Constraint
from kakeya_worker.grammars.grammar import Grammar
from kakeya_worker.grammars.reasoning import ReasonedConstraint, Reasoning, replayed
from kakeya_worker.grammars.vocabulary import Vocabulary, VocabularyError, library_name, load
from kakeya_worker.host.daemon_threads import DaemonThreads

_log = structlog.get_logger()

# What one grammar may cost others: a second to compile it, 20 ms to begin its lexer, 17 ms for a mask, 2 KB for each
# state of its lexer. All but the states are the library's defaults. Errors quote no grammar: they come into logs.
_LIMITS = LLParserLimits(
    max_items_in_row=2_000,
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=50_000,
    max_grammar_size=500_000,
    verbose_errors=False,
)
_MAX_COMPILED = 32  # a kilobyte to some megabytes each, 100 MB at the limits
_NUM_THREADS = 2
# Nobody waits for a new grammar as those wait who generate.
_COMPILING_NICENESS = 10


class Grammars:
    """Holds Generates to grammars. Methods may be called from any thread.

    Args:
        tokenizer: path of the checkpoint's tokenizer.json; None: it brings none, and every grammar is refused.
        tokenizer_digest: see `kakeya_shared.contract.tokenizer_digest`.

    Attributes:
        library: feature that says by what tokens are masked here; empty: they cannot be.
    """

    def __init__(self, tokenizer: Path | None, tokenizer_digest: str, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._vocabulary: Vocabulary | VocabularyError
        self.library = ""
        try:
            self._vocabulary = load(tokenizer, vocab_size)
            self.library = library_name(tokenizer_digest, vocab_size)
        except VocabularyError as error:
            if tokenizer is not None:
                _log.warning("answers cannot be held to grammars", error=str(error))
            self._vocabulary = error
        self._masking = DaemonThreads(_NUM_THREADS, "grammar-masks")
        self._compiling = DaemonThreads(_NUM_THREADS, "grammar-compiler", niceness=_COMPILING_NICENESS)
        self._lock = Lock()
        self._compiled: OrderedDict[bytes, Future[LLMatcher]] = OrderedDict()

    async def check(self, grammar: Grammar) -> None:
        """Raises InvalidField: it cannot be used here."""
        await self._compiled_form(grammar, self._usable(grammar))

    async def reasoned(
        self,
        reasoning: Reasoning,
        grammar: Grammar | None,
        eos_token_ids: Collection[int],
        previous_token_ids: Sequence[int],
    ) -> ReasonedConstraint:
        """As `constraint`, of an answer that thinks first, and is held to a grammar, or to none, behind that."""
        thought, of_answer = replayed(reasoning, previous_token_ids)
        answer = None if grammar is None else await self.constraint(grammar, eos_token_ids, of_answer)
        return ReasonedConstraint(thought, answer, eos_token_ids, self._vocab_size)

    async def constraint(
        self, grammar: Grammar, eos_token_ids: Collection[int], previous_token_ids: Sequence[int]
    ) -> Constraint:
        """For one Generate, behind the tokens that it has produced before. Raises InvalidField."""
        vocabulary = self._usable(grammar)
        ends = [token_id for token_id in eos_token_ids if token_id < vocabulary.size]
        if not ends:
            raise grammar.refused("the session has no EOS tokens, with which an answer under a grammar ends")
        compiled = await self._compiled_form(grammar, vocabulary)
        constraint = Constraint(
            grammar,
            vocabulary,
            compiled.deep_copy(),
            lambda: self._anew(grammar, vocabulary),
            ends,
            self._masking,
        )
        await asyncio.wrap_future(self._compiling.submit(lambda: constraint.begin(previous_token_ids)))
        return constraint

    def close(self, timeout_seconds: float) -> None:
        """Ends the threads."""
        self._masking.close(timeout_seconds)
        self._compiling.close(timeout_seconds)

    def _usable(self, grammar: Grammar) -> Vocabulary:
        """Raises InvalidField."""
        if isinstance(self._vocabulary, VocabularyError):
            raise grammar.refused(str(self._vocabulary))
        return self._vocabulary

    async def _compiled_form(self, grammar: Grammar, vocabulary: Vocabulary) -> LLMatcher:
        """At its beginning, to be copied. Raises InvalidField."""
        compiled = asyncio.wrap_future(self._compile(grammar, vocabulary))
        compiled.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to hear it
        # Others may wait for the same: nobody who leaves takes it from them.
        return await asyncio.shield(compiled)

    def _compile(self, grammar: Grammar, vocabulary: Vocabulary) -> "Future[LLMatcher]":
        digest = grammar.digest
        with self._lock:
            if digest in self._compiled:
                self._compiled.move_to_end(digest)
                return self._compiled[digest]
            compiling = self._compiled[digest] = self._compiling.submit(lambda: _matcher(grammar, vocabulary))
            while len(self._compiled) > _MAX_COMPILED:
                self._compiled.popitem(last=False)
        compiling.add_done_callback(lambda done: self._forget_failed(digest, done))
        return compiling

    def _forget_failed(self, digest: bytes, done: "Future[LLMatcher]") -> None:
        """What is raised again and again grows."""
        if done.cancelled() or done.exception() is not None:
            with self._lock:
                if self._compiled.get(digest) is done:
                    del self._compiled[digest]

    def _anew(self, grammar: Grammar, vocabulary: Vocabulary) -> LLMatcher:
        """For an answer that what others have had done may have stopped; it is not used for another any more."""
        with self._lock:
            self._compiled.pop(grammar.digest, None)
        return _matcher(grammar, vocabulary)


def _matcher(grammar: Grammar, vocabulary: Vocabulary) -> LLMatcher:
    """Raises InvalidField: the library cannot do it, or not within its limits."""
    matcher = LLMatcher(vocabulary.tokenizer, grammar.library_form, log_level=0, limits=_LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()  # what has no beginning shows; and copies need not find out the same
    if matcher.is_error():
        raise grammar.refused(matcher.get_error())
    return matcher
