"""Generates with drafts on an exact model: the same tokens, details and ends as without, in fewer steps."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kakeya_shared.errors.tree import Internal, InvalidField, OperationStopped
from kakeya_worker.conformance.tools import drafts
from kakeya_worker.conformance.tools.drafts import Failing, Lying, Record
from kakeya_worker.conformance.tools.tokenizer_files import NUM_TOKENS, write_tokenizer
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_state import ForkSource
from kakeya_worker.engine.lanes.operation import MAX_UNREAD_TOKENS, Append, Generate
from kakeya_worker.engine.lanes.results import Finish, GenerateResult
from kakeya_worker.engine.sampling.gumbel import Survivors, draw
from kakeya_worker.engine.sampling.sampling import Sampling, TokenDetail
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.proposer import NewProposer
from kakeya_worker.engine.speculation import ngram
from kakeya_worker.engine.speculation.proposers import Proposers
from kakeya_worker.grammars.grammar import Grammar
from kakeya_worker.grammars.grammars import Grammars
from kakeya_worker.grammars.reasoning import Reasoning
from kakeya_worker.torch_backend import TorchVerifier
from tests.unit.worker.engine_calls import (
    NUM_LANES,
    SINK,
    TIMEOUT,
    WINDOW,
    Tokens,
    engines_in_turn,
    error_of,
    live_state,
    open_session,
    start_append,
    start_generate,
    state_of,
)

VOCABULARY, END = 1024, NUM_TOKENS - 2
GEOMETRY = LaneGeometry(SINK, WINDOW, chunk=32)
DRAWN: dict[str, Any] = {"seed": 5, "temperature": 1.0, "top_p": 0.95}


@pytest.fixture(scope="module")
def exact(random_checkpoint: Path) -> TorchVerifier:
    return TorchVerifier(str(random_checkpoint), weights="int8", kv_dtype="auto", num_threads=1, cache_directory=None)


Start = Callable[[NewProposer | Proposers | None], Engine]


@pytest.fixture
def start(exact: TorchVerifier) -> Iterator[Start]:
    """See `engines_in_turn`."""
    with engines_in_turn(exact, GEOMETRY) as start:

        def started(proposer: NewProposer | Proposers | None) -> Engine:
            if proposer is None or isinstance(proposer, Proposers):
                return start(proposer)
            return start(drafts.proposers(proposer))

        yield started


@dataclass
class Answer:
    """All that a caller sees of it, and what drafts did."""

    tokens: list[int]
    details: list[TokenDetail | None]
    finish: Finish
    digest: int | None
    result: GenerateResult = field(compare=False)
    num_steps: int = field(compare=False)


def answer(engine: Engine, max_tokens: int = 60, session_id: str = "s", length: int = 30, **asked: Any) -> Answer:
    generate, tokens = start_generate(engine, length, max_tokens, session_id=session_id, **asked)
    result = generate.future.result(TIMEOUT)
    assert result.num_generated == len(tokens.ids)
    assert result.lane == state_of_bf16(length + len(tokens.ids)) == live_state(engine, session_id)
    return Answer(tokens.ids, tokens.details, result.finish, result.lane.history_digest, result, generate.num_steps)


def state_of_bf16(length: int) -> Any:
    """The exact mode keeps K and V in half the bytes."""
    state = state_of(length)
    return type(state)(state.history_length, state.kv_live_bytes // 2, state.retained)


@pytest.fixture
def plain(start: Start) -> Callable[..., tuple[Answer, Record]]:
    """An answer without drafts, and the record of it."""

    def of(**asked: Any) -> tuple[Answer, Record]:
        record = Record(is_silent=True)
        found = answer(start(record), **asked)
        record.is_silent = False
        return found, record

    return of


Plain = Callable[..., tuple[Answer, Record]]

ASKED: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": DRAWN,
    "penalties": {"presence_penalty": 1.0, "frequency_penalty": 0.7, "repetition_penalty": 1.3},
    "drawn-penalties": {**DRAWN, "presence_penalty": 1.0, "frequency_penalty": 0.7},
    "bias": {**DRAWN, "logit_bias": ((77, 3.0), (99, -100.0)), "top_k": 40, "min_p": 0.01},
    "logprobs": {"num_top_logprobs": 3},
    "drawn-logprobs": {**DRAWN, "num_top_logprobs": 0},
    "ends": {**DRAWN, "eos": set(range(0, 1024, 20))},
    "ends-masked-at-first": {**DRAWN, "eos": set(range(0, 1024, 6)), "min_tokens": 20},
    "ends-ignored": {**DRAWN, "eos": set(range(0, 1024, 6)), "ignores_eos": True},
    "stops": {**DRAWN, "stop_token_sequences": tuple((token_id,) for token_id in range(0, 1024, 30))},
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_drafts_that_are_right_make_steps_fewer(start: Start, plain: Plain, asked: dict[str, Any]) -> None:
    expected, record = plain(**asked)
    found = answer(start(record), **asked)
    assert found == expected
    result = found.result
    assert result.num_accepted == result.num_generated - found.num_steps
    if len(expected.tokens) > 20:
        assert found.num_steps < len(expected.tokens) / 2
    assert expected.num_steps == len(expected.tokens)


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("wrong_every", [2, 5])
def test_wrong_drafts_change_nothing(start: Start, plain: Plain, asked: dict[str, Any], wrong_every: int) -> None:
    expected, record = plain(**asked)
    record.wrong_every = wrong_every
    found = answer(start(record), **asked)
    assert found == expected
    if len(expected.tokens) > 20:
        assert 0 < found.result.num_accepted < found.result.num_drafted


def test_tokens_are_drawn_by_the_backend_where_it_has_a_draw(
    start: Start, exact: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them, those behind right drafts too, and none that needs no draw."""
    drawn = []

    def counted(survivors: Survivors, seed: int, history_index: int) -> int:
        drawn.append(history_index)
        return draw(survivors, seed, history_index)

    monkeypatch.setattr(exact, "draw", counted)
    record = Record(is_silent=True)
    without = answer(start(record), max_tokens=40, **DRAWN)
    assert drawn == list(range(30, 70))
    drawn.clear()
    record.is_silent = False
    found = answer(start(record), max_tokens=40, **DRAWN)
    assert (found, found.num_steps < without.num_steps) == (without, True)
    assert drawn == list(range(30, 70))
    drawn.clear()
    answer(start(None), max_tokens=40)
    assert not drawn


@pytest.mark.parametrize("proposer", [Lying, Failing, ngram.ngram], ids=["lying", "failing", "ngram"])
@pytest.mark.parametrize("asked", [{}, DRAWN, ASKED["ends"]], ids=["greedy", "drawn", "ends"])
def test_lies_change_nothing(start: Start, plain: Plain, proposer: NewProposer, asked: dict[str, Any]) -> None:
    expected, _ = plain(**asked)
    engine = start(proposer)
    assert answer(engine, **asked) == expected
    assert answer(engine, session_id="t", **asked) == expected


def test_what_repeats_itself_is_found(start: Start, plain: Plain) -> None:
    """By `ngram`, in what the model says over and over."""
    said: dict[str, Any] = {"logit_bias": tuple((token_id, 30.0) for token_id in (7, 8, 9)), "frequency_penalty": 1.0}
    expected, _ = plain(**said)
    found = answer(start(ngram.ngram), **said)
    assert found == expected
    assert found.result.num_accepted > 5


def test_nothing_comes_behind_an_end_among_right_drafts(start: Start, plain: Plain) -> None:
    """What is drafted behind it is what would have come, had it not ended."""
    free, record = plain()
    position, eos = next((i, t) for i, t in enumerate(free.tokens) if i >= 20 and t not in free.tokens[:i])
    sequence = tuple(free.tokens[position - 1 : position + 1])
    ways: tuple[dict[str, Any], ...] = ({"eos": {eos}}, {"stop_token_sequences": (sequence,)})
    for ends in ways:
        found = answer(start(record), **ends)
        assert found.tokens == free.tokens[: position + 1]
        assert found.finish in (Finish.EOS, Finish.STOP_SEQUENCE)
        assert found.num_steps < position


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 17, 18])
def test_it_ends_at_its_limit_among_right_drafts(start: Start, plain: Plain, max_tokens: int) -> None:
    free, record = plain()
    engine = start(record)
    found = answer(engine, max_tokens)
    assert (found.tokens, found.finish) == (free.tokens[:max_tokens], Finish.MAX_TOKENS)
    rest = answer(engine, 60 - max_tokens, length=30 + max_tokens)
    assert found.tokens + rest.tokens == free.tokens, "the lane ends where the answer does"


@pytest.mark.parametrize("window", [26, 27, 29, 30, 33])
def test_a_full_lane_ends_it_among_right_drafts(start: Start, window: int) -> None:
    record = Record(is_silent=True)
    found, room = [], 2 + window - 20
    for _ in range(2):
        engine = start(record)
        engine.close("s", 1).result(TIMEOUT)
        open_session(engine, sink=2, window=window, refuses_overflow=True)
        start_append(engine, 0, 20).future.result(TIMEOUT)
        generate, tokens = start_generate(engine, 20, 100)
        result = generate.future.result(TIMEOUT)
        assert (result.finish, result.num_generated, result.num_evicted) == (Finish.TRUNCATED, room, 0)
        found.append((tokens.ids, generate.num_steps))
        record.is_silent = False
    assert found[0][0] == found[1][0]
    assert found[1][1] < found[0][1] == room


def test_a_reader_that_lags_is_not_run_over(start: Start) -> None:
    record = Record(is_silent=True)
    expected = None
    for _ in range(2):
        generate, tokens = start_generate(engine := start(record), 30, 200)
        for num_read in (0, 10, 13):
            if num_read:
                engine.acknowledge(generate, num_read)
            while len(tokens.ids) < num_read + MAX_UNREAD_TOKENS:
                assert not generate.future.done()
            assert generate.is_paused
            assert engine.slab_now().result(TIMEOUT).num_paused == 1
            assert len(tokens.ids) == num_read + MAX_UNREAD_TOKENS
        while not generate.future.done():
            engine.acknowledge(generate, len(tokens.ids))
        assert generate.future.result().num_generated == 200
        assert expected in (None, tokens.ids)
        expected, record.is_silent = tokens.ids, False
    assert generate.num_accepted > 100


def test_what_is_stopped_keeps_what_it_has_delivered(start: Start, plain: Plain) -> None:
    expected, record = plain()
    engine = start(record)
    generate, tokens = start_generate(engine, 30, 60, wanted=20)
    assert tokens.enough.wait(TIMEOUT)
    stopped = engine.stop_operation("s", 1, 30).result(TIMEOUT)
    if isinstance(generate.future.exception(TIMEOUT), OperationStopped):
        assert len(tokens.ids) < 60
    assert list(stopped.token_ids) == tokens.ids == expected.tokens[: len(tokens.ids)]
    assert stopped.state.history_length == 30 + len(tokens.ids)
    length = stopped.state.history_length
    if length < 90:
        assert answer(engine, 90 - length, length=length).tokens == expected.tokens[length - 30 :]


def test_it_goes_on_with_an_append(start: Start, plain: Plain) -> None:
    """The lane ends with the final hidden vector of the last token that was right."""
    expected, record = plain(max_tokens=33)
    others = []
    for wrong_every in (0, 2):
        record.wrong_every = wrong_every
        engine = start(record)
        assert answer(engine, 33) == expected
        start_append(engine, 63, 3).future.result(TIMEOUT)
        others.append(answer(engine, 20, length=66))
    assert others[0] == others[1]


def test_several_sessions_draft_in_one_step_beside_prefills(start: Start) -> None:
    found = []
    record = Record(is_silent=True)
    for _ in range(2):
        engine = start(record)
        prefill = start_append(engine, 30, 300, "r")
        running = [
            start_generate(engine, 30, 60, session_id=session_id, seed=seed, temperature=1.0)
            for seed, session_id in enumerate("st")
        ]
        for generate, _ in running:
            generate.future.result(TIMEOUT)
        prefill.future.result(TIMEOUT)
        found.append([tokens.ids for _, tokens in running])
        found[-1].append(answer(engine, 20, "r", 330).tokens)
        record.is_silent = False
    assert found[0] == found[1]
    assert all(generate.num_accepted > 0 for generate, _ in running)


def test_scored_appends_and_drafts_share_a_step(start: Start, plain: Plain) -> None:
    expected, record = plain()
    details = []
    for proposer in (None, record):
        engine = start(proposer)
        generate, tokens = start_generate(engine, 30, 60)
        append = Append("t", 1, 30, tuple(range(200, 300)), 2)
        engine.submit(append)
        details.append(append.future.result(TIMEOUT).details)
        generate.future.result(TIMEOUT)
        assert tokens.ids == expected.tokens
    assert details[0] == details[1]


def test_a_proposer_that_hangs_keeps_nobody_waiting(start: Start, plain: Plain) -> None:
    expected, _ = plain()
    let_go = threading.Event()

    class Hanging(Lying):
        def propose(self, token_id: int, num_tokens: int) -> Sequence[int]:
            let_go.wait(TIMEOUT)
            return super().propose(token_id, num_tokens)

    try:
        assert answer(start(drafts.proposers(Hanging, late_seconds=0.001))) == expected
    finally:
        let_go.set()


class Remembering(Lying):
    """Drafts nothing, and remembers what it hears."""

    def __init__(self, geometry: LaneGeometry, vocab_size: int) -> None:
        super().__init__(geometry, vocab_size)
        self.heard: list[int] = []
        made.append(self)

    def restart(self, token_ids: Sequence[int]) -> None:
        self.heard = list(token_ids)

    def extend(self, token_ids: Sequence[int]) -> None:
        self.heard += token_ids


made: list[Remembering] = []


def _settle(engine: Engine) -> None:
    """All that was said is heard; the engine is idle."""
    for occupant in engine.lanes.occupants():
        if occupant.drafter is not None:
            occupant.drafter.hear(occupant.drafter.take_news())


def test_a_proposer_hears_what_its_session_is(start: Start) -> None:
    """All of it, and after a fork, a rewind or a restore what the lane then keeps."""
    made.clear()
    engine = start(Remembering)
    _, of_s, _ = made[-3:]  # of "r", "s" and "t"
    found = answer(engine, 20)
    whole = [*range(100, 130), *found.tokens]
    engine.close("t", 1).result(TIMEOUT)
    engine.fork("t", 2, ForkSource("s", 1, 50)).result(TIMEOUT)
    engine.close("r", 1).result(TIMEOUT)
    engine.restore("r", 2, [engine.take_snapshot("s", 1)])
    start_append(engine, 50, 60).future.result(TIMEOUT)
    engine.rewind("t", 2, 50, 40).result(TIMEOUT)
    _settle(engine)
    of_fork, of_restored = made[-2:]
    assert of_s.heard == [*whole, *range(100, 160)]
    assert of_fork.heard == whole[:40]
    assert of_restored.heard == whole


def test_one_that_begins_with_what_is_kept_hears_no_more(start: Start) -> None:
    made.clear()
    engine = start(Remembering)
    start_append(engine, 30, 100).future.result(TIMEOUT)
    engine.close("t", 1).result(TIMEOUT)
    engine.fork("t", 2, ForkSource("s", 1, 130)).result(TIMEOUT)
    _settle(engine)
    assert made[-1].heard == [*range(100, 104), *range(136, 200)]


@pytest.fixture
def grammars(tmp_path: Path) -> Iterator[Grammars]:
    grammars = Grammars(write_tokenizer(tmp_path), "", VOCABULARY)
    yield grammars
    grammars.close(TIMEOUT)


HELD = [Grammar("regex", ("[0-9]{30,40}x",)), Grammar("choice", ("abcdefghijklmnop", "abcxyz"))]


@pytest.mark.parametrize("grammar", HELD, ids=["regex", "choice"])
@pytest.mark.parametrize("wrong_every", [0, 3])
def test_a_grammar_holds_drafts(start: Start, grammars: Grammars, grammar: Grammar, wrong_every: int) -> None:
    record, found = Record(is_silent=True), []
    for _ in range(2):
        held_to = asyncio.run(grammars.constraint(grammar, {END}, ()))
        found.append(answer(start(record), eos={END}, constraint=held_to, **DRAWN))
        record.is_silent, record.wrong_every = False, wrong_every
    assert found[0] == found[1]
    assert found[0].finish is Finish.EOS
    assert found[1].num_steps < found[0].num_steps
    if wrong_every:
        assert found[1].result.num_accepted < found[1].result.num_drafted


def test_a_grammar_holds_against_drafts_of_another_answer(start: Start, plain: Plain, grammars: Grammars) -> None:
    """Drafts that the grammar does not allow are wrong ones, and no harm to it."""
    _, record = plain(**DRAWN)
    found = []
    for proposer in (None, record, Lying):
        held_to = asyncio.run(grammars.constraint(HELD[0], {END}, ()))
        found.append(answer(start(proposer), eos={END}, constraint=held_to, **DRAWN))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("wrong_every", [0, 4])
def test_thoughts_have_their_bound(start: Start, grammars: Grammars, wrong_every: int) -> None:
    reasoning = Reasoning(end_token_ids=(17, 18), max_tokens=12)
    record, found = Record(is_silent=True), []
    for _ in range(2):
        held_to = asyncio.run(grammars.reasoned(reasoning, HELD[0], {END}, ()))
        found.append(answer(start(record), eos={END}, constraint=held_to, **DRAWN))
        record.is_silent, record.wrong_every = False, wrong_every
    assert found[0] == found[1]
    assert found[0].tokens[12:14] == [17, 18]
    assert found[1].num_steps < found[0].num_steps


class Late:
    """A constraint whose masks come only when a test lets them, from the third token on."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.num_advanced = 0
        self.num_waits = 0
        self.let_come = threading.Event()

    @property
    def is_ready(self) -> bool:
        return (self.num_advanced < 3 or self.let_come.is_set()) and bool(self.inner.is_ready)

    def wait(self, timeout_seconds: float) -> None:
        self.num_waits += 1
        self.inner.wait(timeout_seconds if self.num_advanced >= 3 else TIMEOUT)

    def allowed(self) -> Any:
        assert self.let_come.wait(TIMEOUT) if self.num_advanced >= 3 else True
        return self.inner.allowed()

    def foresee(self, token_ids: Sequence[int]) -> None:
        self.inner.foresee(token_ids)

    def advance(self, token_id: int) -> None:
        self.num_advanced += 1
        self.inner.advance(token_id)


def test_a_mask_of_a_draft_that_is_late_delays_nobody_else(start: Start, grammars: Grammars) -> None:
    record, found = Record(is_silent=True), []
    for turn in range(2):
        engine = start(record)
        late = Late(asyncio.run(grammars.constraint(HELD[0], {END}, ())))
        if not turn:
            late.let_come.set()
        waiting, tokens = start_generate(engine, 30, 60, constraint=late, eos={END}, **DRAWN)
        free, _ = start_generate(engine, 30, 60, session_id="t")
        assert free.future.result(TIMEOUT).num_generated == 60
        assert turn == 0 or len(tokens.ids) == 3
        late.let_come.set()
        waiting.future.result(TIMEOUT)
        found.append(tokens.ids)
        record.is_silent = False
    assert found[0] == found[1]


class TooMuch(Late):
    """Raises instead."""

    def allowed(self) -> Any:
        if self.num_advanced >= 9:
            raise HELD[0].refused("too complex")
        return self.inner.allowed()


def test_a_grammar_that_asks_too_much_ends_its_answer_at_the_same_token(start: Start, grammars: Grammars) -> None:
    record, found = Record(is_silent=True), []
    for _ in range(2):
        engine = start(record)
        broken = TooMuch(asyncio.run(grammars.constraint(HELD[0], {END}, ())))
        broken.let_come.set()
        generate, tokens = start_generate(engine, 30, 60, constraint=broken, eos={END}, **DRAWN)
        assert isinstance(error_of(generate.future), InvalidField)
        assert live_state(engine).history_length == 39
        found.append((tokens.ids, generate.num_steps))
        record.is_silent = False
    assert found[0][0] == found[1][0]
    assert len(found[0][0]) == 9
    assert found[1][1] < found[0][1]


def test_logits_that_are_no_numbers_end_it_at_the_same_token(
    start: Start, exact: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(is_silent=True)
    scored = exact.scored_logits

    def broken(lanes: Sequence[int]) -> Any:
        logits = scored(lanes)
        logits[2:] = float("nan")
        return logits

    expected = answer(start(record))
    record.is_silent = False
    engine = start(record)
    monkeypatch.setattr(exact, "scored_logits", broken)
    found = answer(engine)
    assert found == expected, "what is wrong with a draft's logits is found out by a step of its own"
    assert 0 < found.result.num_accepted <= 2 * found.num_steps


def test_drafts_whose_logits_cannot_be_had_were_for_nothing(
    start: Start, plain: Plain, exact: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, record = plain()
    engine = start(record)

    def broken(lanes: Sequence[int]) -> Any:
        raise RuntimeError

    monkeypatch.setattr(exact, "scored_logits", broken)
    found = answer(engine)
    assert found == expected
    assert (found.num_steps, found.result.num_accepted) == (60, 0)


def test_a_reader_that_fails_fails_nobody_s_lane(start: Start, plain: Plain) -> None:
    """Told to in the midst of drafts, the engine ends with what is committed."""
    expected, record = plain()
    engine = start(record)

    class Failing(Tokens):
        def __call__(self, token_id: int, detail: TokenDetail | None) -> None:
            if len(self.ids) == 20:
                raise RuntimeError
            super().__call__(token_id, detail)

    tokens = Failing()
    generate = Generate("s", 1, 30, 60, frozenset(), Sampling(), tokens)
    engine.submit(generate)
    assert isinstance(error_of(generate.future), Internal)
    assert live_state(engine).history_length == 50
    assert tokens.ids == expected.tokens[:20]
    assert answer(engine, 40, length=50).tokens == expected.tokens[20:]


def test_a_session_reserves_what_its_proposer_keeps(start: Start) -> None:
    plain, drafting = start(None).lanes.totals(), start(Proposers("ngram")).lanes.totals()
    assert drafting.lane_bytes - plain.lane_bytes == ngram.NgramProposer().memory_bytes == 1 << 20
    assert drafting.slab_bytes == NUM_LANES * drafting.lane_bytes
    assert drafting.kv_live_bytes == plain.kv_live_bytes
