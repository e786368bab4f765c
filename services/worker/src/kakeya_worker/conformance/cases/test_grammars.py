"""Grammars: what is masked is masked in every backend and mode, and an answer is the same alone and in a batch."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_worker.conformance.tools.subject import Subject
from kakeya_worker.conformance.tools.tokenizer_files import WORDS, token_text, write_tokenizer
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.lanes.results import Finish
from kakeya_worker.engine.sampling.sampling import Sampling
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions
from kakeya_worker.grammars.grammar import Grammar
from kakeya_worker.grammars.grammars import Grammars

GEOMETRY, NUM_LANES = LaneGeometry(sink=4, window=40, chunk=32), 3
TIMEOUT = 60.0
NUM_TOKENS = 63  # whose reader says nothing: one more, and the row would pause
NUM_BYTES = 128  # ASCII: there are checkpoints of 256 ids
END = NUM_BYTES + len(WORDS)
CHOICE = Grammar("choice", ("yes", "no", "maybe so"))
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "minimum": 0, "maximum": 40}},
    "required": ["kind", "age"],
    "additionalProperties": False,
}
JSON = Grammar("json_schema", (json.dumps(SCHEMA),))


@pytest.fixture
def grammars(subject: Subject, tmp_path: Path) -> Iterator[Grammars]:
    grammars = Grammars(write_tokenizer(tmp_path, NUM_BYTES), "", subject.variant.config["vocab_size"])
    yield grammars
    grammars.close(TIMEOUT)


@pytest.fixture
def engine(subject: Subject) -> Iterator[Engine]:
    engine = Engine(subject.load(), GEOMETRY, NUM_LANES, step_tokens=64)
    engine.start()
    yield engine
    engine.shut_down()


def begin(engine: Engine, subject: Subject, grammars: Grammars, grammar: Grammar | None, number: int) -> Any:
    """A session of its own, drawn from; the generate, and its tokens as they come."""
    session_id, prompt = f"session-{number}", subject.variant.history(30, number % NUM_LANES)
    engine.open(session_id, 1, SessionOptions()).result(TIMEOUT)
    append = Append(session_id, 1, 0, prompt)
    engine.submit(append)
    append.future.result(TIMEOUT)
    tokens: list[int] = []
    sampling = Sampling(seed=7, temperature=1.0)
    generate = Generate(
        session_id, 1, len(prompt), NUM_TOKENS, frozenset({END}), sampling, lambda token_id, _: tokens.append(token_id)
    )
    if grammar is not None:
        generate.constraint = asyncio.run(grammars.constraint(grammar, generate.eos_token_ids, ()))
    engine.submit(generate)
    return generate, tokens


def end(engine: Engine, begun: Any) -> tuple[Finish, list[int]]:
    generate, tokens = begun
    finish = generate.future.result(TIMEOUT).finish
    engine.close(generate.session_id, 1).result(TIMEOUT)
    return finish, tokens


@pytest.mark.parametrize("grammar", [CHOICE, JSON], ids=["choice", "json"])
def test_an_answer_is_of_its_grammar_alone_and_in_a_batch(
    subject: Subject, engine: Engine, grammars: Grammars, grammar: Grammar
) -> None:
    """Beside one that is free, and one under another grammar; a free one is what it is without them."""
    free = end(engine, begin(engine, subject, grammars, None, 1))
    alone = end(engine, begin(engine, subject, grammars, grammar, 3))
    together = [
        begin(engine, subject, grammars, each, number) for number, each in ((4, None), (5, CHOICE), (6, grammar))
    ]
    (_, beside_free), _, in_a_batch = [end(engine, each) for each in together]
    for finish, tokens in (alone, in_a_batch):
        assert (finish, tokens[-1]) == (Finish.EOS, END)
        text = token_text(tokens[:-1], NUM_BYTES)
        if grammar is CHOICE:
            assert text in CHOICE.texts
        else:
            value = json.loads(text)
            assert (value["kind"] in ("cat", "dog"), 0 <= value["age"] <= 40, len(value)) == (True, True, 2)
    if subject.tolerance == "exact":
        assert in_a_batch == alone
        assert beside_free == free[1]
