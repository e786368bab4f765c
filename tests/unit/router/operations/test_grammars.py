"""Grammars: on their way to the worker, in the operation's record, and which worker may go on with an answer."""

import asyncio
import json
from dataclasses import fields
from typing import Any

import pytest

from kakeya_router.operations.needed_features import NeededFeatures
from kakeya_router.operations.operation import Operation
from kakeya_router.store.outcomes import PinOperation
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.store.sessions.session_store import Taken
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_shared.contract.features import GRAMMAR, GRAMMAR_LIBRARY, REASONING
from kakeya_shared.contract.generation_limits import MAX_GRAMMAR_BYTES
from kakeya_shared.errors.tree import Draining, InvalidField, NoWorker, TokenOutOfVocabulary
from kakeya_shared.process.detached_tasks import DetachedTasks
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api
from tests.unit.router.fake_worker import VOCAB_SIZE, FakeWorker
from tests.unit.router.lapses import be_lost
from tests.unit.router.operations.test_recovery import expected, first_token, token_ids
from tests.unit.router.stack import Client, Stack, turn_request
from tests.unit.router.workers.test_features import holds_no_worker

ONE, OTHER = f"{GRAMMAR_LIBRARY}1-9-1-aa", f"{GRAMMAR_LIBRARY}2-0-0-bb"
CHOICE = api.Grammar(choice=api.Grammar.Choice(texts=["yes", "no"]))


@pytest.fixture
async def worker(stack: Stack, client: Client) -> FakeWorker:
    return await stack.worker(client, features=[GRAMMAR, ONE])


@pytest.fixture
async def session_id(client: Client, worker: FakeWorker) -> str:
    session_id = await client.session(eos_token_ids=[7])
    await client.append(session_id, [1, 2])
    return session_id


@pytest.mark.parametrize(
    ("grammar", "to_worker"),
    [
        (api.Grammar(json_schema="{}"), worker_api.Grammar(json_schema="{}")),
        (api.Grammar(regex="a"), worker_api.Grammar(regex="a")),
        (api.Grammar(lark="start:"), worker_api.Grammar(lark="start:")),
        (CHOICE, worker_api.Grammar(choice=worker_api.Grammar.Choice(texts=["yes", "no"]))),
    ],
)
async def test_it_comes_to_the_worker_as_it_is(
    client: Client, worker: FakeWorker, session_id: str, grammar: api.Grammar, to_worker: worker_api.Grammar
) -> None:
    await client.generate(session_id, 3, grammar=grammar)
    await client.turn(turn_request(session_id, [5], grammar=grammar))
    assert [request.grammar for request in worker.generating] == [to_worker] * 2
    assert worker.checking == [to_worker], "of the turn, before it appended"
    await client.generate(session_id, 3)
    assert not worker.generating[-1].HasField("grammar")


async def test_the_record_of_the_operation_holds_it(
    stack: Stack, client: Client, worker: FakeWorker, session_id: str
) -> None:
    worker.pause_in = 1
    call = client.generating(session_id, 300, grammar=CHOICE)
    await first_token(call)
    record = await stack.redis.hgetall(f"kakeya:{{tiny}}:op:{session_id}")
    assert json.loads(record["parameters"])["grammar"] == {"kind": "choice", "texts": ["yes", "no"]}
    assert await pinned(stack, session_id) == ONE
    worker.flowing.set()
    await token_ids(call)
    await client.generate(session_id, 3)
    assert await pinned(stack, session_id) == ""


async def pinned(stack: Stack, session_id: str) -> str | None:
    return await stack.redis.hget(f"kakeya:{{tiny}}:session:{session_id}", "operation_features")


@pytest.mark.parametrize(
    ("grammar", "field"),
    [
        (api.Grammar(), "grammar"),
        (api.Grammar(regex=""), "grammar.regex"),
        (api.Grammar(choice=api.Grammar.Choice(texts=["", ""])), "grammar.choice"),
        (api.Grammar(json_schema="é" * (MAX_GRAMMAR_BYTES // 2) + "x"), "grammar.json_schema"),
        (api.Grammar(choice=api.Grammar.Choice(texts=["x" * MAX_GRAMMAR_BYTES, "y"])), "grammar.choice"),
    ],
)
async def test_one_that_is_empty_or_too_long_is_refused(
    client: Client, worker: FakeWorker, session_id: str, grammar: api.Grammar, field: str
) -> None:
    with pytest.raises(InvalidField) as raised:
        await client.generate(session_id, 3, grammar=grammar)
    assert raised.value.metadata["field"] == field
    assert not worker.generating
    whole = api.Grammar(json_schema="x" * MAX_GRAMMAR_BYTES)
    assert await token_ids(client.generating(session_id, 3, grammar=whole)) == expected(2, 5)


async def test_how_it_thinks_comes_to_the_worker_too(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, features=[GRAMMAR, REASONING, ONE])
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    marks: dict[str, Any] = {"end_token_ids": [5, 6], "max_tokens": 9, "begin_token_ids": [4]}
    await client.generate(session_id, 3, grammar=CHOICE, reasoning=api.Reasoning(**marks))
    assert worker.generating[-1].reasoning == worker_api.Reasoning(**marks)
    for wrong, field in (
        ({}, "end"),
        ({"end_token_ids": [1] * 17}, "end"),
        ({**marks, "begin_token_ids": [1] * 17}, "begin"),
    ):
        with pytest.raises(InvalidField) as raised:
            await client.generate(session_id, 3, reasoning=api.Reasoning(**wrong))
        assert raised.value.metadata["field"] == f"reasoning.{field}_token_ids"
    with pytest.raises(TokenOutOfVocabulary):
        await client.generate(session_id, 3, reasoning=api.Reasoning(end_token_ids=[VOCAB_SIZE]))
    assert len(worker.generating) == 1


async def test_ends_cannot_be_ignored_beside_it(client: Client, worker: FakeWorker, session_id: str) -> None:
    with pytest.raises(InvalidField) as raised:
        await client.generate(session_id, 3, grammar=CHOICE, ignore_eos=True)
    assert raised.value.metadata["field"] == "ignore_eos"


async def test_what_the_worker_refuses_appends_nothing(client: Client, worker: FakeWorker, session_id: str) -> None:
    worker.failures["CheckGrammar"] = [InvalidField("grammar.regex: no", metadata={"field": "grammar.regex"})]
    with pytest.raises(InvalidField) as raised:
        await client.turn(turn_request(session_id, [5], grammar=api.Grammar(regex="(")))
    assert raised.value.metadata == {"field": "grammar.regex", "part": "generate"}
    assert worker.lanes[session_id].token_ids == [1, 2]
    worker.failures["Generate"] = [InvalidField("grammar.regex: no", metadata={"field": "grammar.regex"})]
    with pytest.raises(InvalidField):
        await client.generate(session_id, 3, grammar=CHOICE)
    assert (await client.info(session_id)).history_length == 2


async def test_a_session_without_ends_takes_none(client: Client, worker: FakeWorker) -> None:
    with pytest.raises(InvalidField, match="no EOS tokens"):
        await client.turn(turn_request(create={}, token_ids=[1, 2], grammar=CHOICE))
    assert not worker.calls["Append"]


async def test_a_worker_that_cannot_say_now_is_asked_by_the_answer(
    client: Client, worker: FakeWorker, session_id: str
) -> None:
    worker.failures["CheckGrammar"] = [Draining("the worker is shutting down")]
    assert (await client.turn(turn_request(session_id, [5], grammar=CHOICE))).token_ids == expected(3, 7)


async def test_an_answer_goes_on_only_under_the_library_that_began_it(stack: Stack) -> None:
    client = await stack.router(admission="queue", queue_seconds=60)
    dying = await stack.worker(client, features=[GRAMMAR, ONE])
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    dying.pause_in = 1
    call = client.generating(session_id, 300, grammar=CHOICE)
    seen = [await first_token(call)]
    newer = await stack.worker(client, "worker-b", features=[GRAMMAR, OTHER])
    rest = asyncio.create_task(token_ids(call))
    await be_lost(dying)
    await stack.worker(client, "worker-c", features=[GRAMMAR, ONE])
    assert seen + await rest == expected(2, 302)
    assert not newer.generating
    assert session_id not in newer.opening
    free = await client.generate(session_id, 3)
    assert len(free) >= 3


async def test_another_router_goes_on_by_the_same_rule(stack: Stack) -> None:
    """The library is in the session's record, not in the memory of the router that began."""
    client, other = await stack.router(), await stack.router()
    worker = await stack.worker(client, features=[GRAMMAR, ONE])
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    asked: dict[str, Any] = {"grammar": CHOICE, "op_id": "mine"}
    assert await token_ids(client.generating(session_id, 5, **asked)) == expected(2, 7)
    again = other.generating(session_id, 5, resume_token_ids=expected(2, 4), **asked)
    assert await token_ids(again) == expected(4, 7)
    await stack.worker(client, "worker-b", features=[GRAMMAR, OTHER])
    await be_lost(worker)
    await holds_no_worker(stack, worker)
    with pytest.raises(NoWorker, match=ONE):
        await other.generate(session_id, 5, resume_token_ids=expected(2, 4), **asked)
    await client.generate(session_id, 2, grammar=CHOICE, op_id="next")
    assert await pinned(stack, session_id) == OTHER


async def test_one_that_changed_nothing_leaves_the_latest_as_it_was(
    stack: Stack, client: Client, worker: FakeWorker, session_id: str
) -> None:
    asked: dict[str, Any] = {"grammar": CHOICE, "op_id": "mine"}
    await client.generate(session_id, 5, **asked)
    worker.failures["CheckGrammar"] = [InvalidField("no", metadata={"field": "grammar"})]
    with pytest.raises(InvalidField):
        await client.turn(turn_request(session_id, [5], grammar=CHOICE))
    assert await pinned(stack, session_id) == ONE
    assert await token_ids(client.generating(session_id, 5, resume_token_ids=expected(2, 4), **asked)) == expected(4, 7)


class Between:
    """What happens between two looks at the store: the worker is gone, or the session is another router's."""

    def __init__(self, worker: WorkerRecord | None) -> None:
        self._worker = worker

    async def holder(self, record: Any, features: Any) -> WorkerRecord | None:
        return self._worker

    async def pin_operation(self, record: Any, claim: Any, features: Any) -> PinOperation:
        return PinOperation.GONE


@pytest.mark.parametrize(("is_there", "error"), [(False, NoWorker), (True, Taken)])
async def test_what_happens_before_it_is_pinned_ends_it(is_there: bool, error: type[Exception]) -> None:
    worker = (
        WorkerRecord.from_hash({**dict.fromkeys([field.name for field in fields(WorkerRecord)], "0"), "features": ONE})
        if is_there
        else None
    )
    between: Any = Between(worker)
    record: Any = None
    operation = Operation(record, Intent("generate", {}, features=frozenset({GRAMMAR})), DetachedTasks())
    with pytest.raises(error):
        await NeededFeatures(between, between).pin(operation)
