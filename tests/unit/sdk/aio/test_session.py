"""The calls of a session and its life."""

import numpy
import pytest

import kakeya
from kakeya import AsyncClient, AsyncSession, OverflowPolicy, SessionState, TokenDetail
from kakeya_stubs.v1 import runtime_pb2
from tests.unit.sdk.scripted_runtime import (
    BYTES_PER_TOKEN,
    FINGERPRINT,
    SINK,
    VOCAB_SIZE,
    WINDOW,
    ScriptedRuntime,
    fails,
    model,
    passes,
)


async def test_create_session_sends_its_options_and_tells_what_was_granted(
    client: AsyncClient, runtime: ScriptedRuntime
) -> None:
    session = await client.create_session(
        eos_token_ids=[2, 3],
        label="notes",
        model="counter",
        sink=2,
        window=8,
        pin=0,
        on_overflow=OverflowPolicy.REFUSE,
        speculation="ngram",
        fingerprint=FINGERPRINT,
        inexact_resume=True,
        ttl_seconds=90,
        park_after_seconds=30,
        disposable=True,
        head=True,
    )
    request = runtime.requests["CreateSession"][0]
    assert list(request.eos_token_ids) == [2, 3]
    assert (request.client_label, request.model, request.sink, request.window) == ("notes", "counter", 2, 8)
    assert (request.HasField("pin"), request.pin, request.ttl_seconds) == (True, 0, 90)
    assert (request.on_overflow, request.fingerprint) == (runtime_pb2.OVERFLOW_POLICY_REFUSE, FINGERPRINT)
    assert request.inexact_resume
    assert request.speculation == "ngram"
    assert (request.park_after_seconds, request.disposable, request.head) == (30, True, True)
    assert len(request.request_id) == 32
    assert (session.id, session.model, session.sink, session.window) == ("counter.0", "counter", SINK, WINDOW)
    assert (session.reserved_bytes, session.vocab_size, session.history_length) == (32_768, VOCAB_SIZE, 0)
    assert (session.exact, session.fingerprint) == (True, FINGERPRINT)


async def test_options_left_out_stay_unset(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    await client.create_session()
    request = runtime.requests["CreateSession"][0]
    assert not any(request.HasField(name) for name in ("sink", "window", "pin", "ttl_seconds", "park_after_seconds"))
    assert (request.model, request.fingerprint, request.inexact_resume) == ("", "", False)
    assert (request.disposable, request.head, request.speculation) == (False, False, "")
    assert request.on_overflow == runtime_pb2.OVERFLOW_POLICY_UNSPECIFIED


async def test_an_overflow_policy_may_be_a_word(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    await client.create_session(on_overflow="evict")
    assert runtime.requests["CreateSession"][0].on_overflow == runtime_pb2.OVERFLOW_POLICY_EVICT
    with pytest.raises(kakeya.InvalidField, match="on_overflow: 'forget'") as raised:
        await client.create_session(on_overflow="forget")  # type: ignore[arg-type]  # that is the test
    assert raised.value.metadata == {"field": "on_overflow"}


async def test_a_session_that_is_full_stays_usable(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.before["AppendTokens"].append(fails("HISTORY_FULL", room="1"))
    with pytest.raises(kakeya.HistoryFull) as raised:
        await session.append([10, 11])
    assert raised.value.metadata == {"room": "1"}
    assert (await session.append([10])).history_length == 1


async def test_append_reports_and_tracks_the_history(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    result = await session.append([10, 11, 12])
    assert result == kakeya.AppendResult(
        history_length=3,
        kv_live_bytes=3 * BYTES_PER_TOKEN,
        prefill_seconds=0.25,
        num_evicted_tokens=7,
        retained=(range(3),),
    )
    assert session.history_length == 3
    await session.append([])
    assert [request.expected_history_length for request in runtime.requests["AppendTokens"]] == [0, 3]


async def test_append_tells_what_its_tokens_are_worth(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    """The first of a history has nothing before it."""
    for token_ids, scored in (([10, 11, 12], [11, 12]), ([13], [13]), ([], [])):
        result = await session.append(token_ids, logprobs=2)
        assert list(result.details) == [TokenDetail(id_, -0.5, {7: -1.0, 6: -2.0}) for id_ in scored]
    assert (await session.append([14])).details == ()
    assert [request.logprobs for request in runtime.requests["AppendTokens"]] == [2, 2, 2, 0]
    assert not runtime.requests["AppendTokens"][-1].HasField("logprobs")
    with pytest.raises(kakeya.InvalidField, match="logprobs"):
        await session.append([1], logprobs=-1)


async def test_what_tokens_are_worth_is_not_known_where_they_were_there_already(
    session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    runtime.after["AppendTokens"].append(fails("OPERATION_STOPPED"))
    result = await session.append([10, 11], logprobs=0)
    assert (result.history_length, result.details) == (2, ())


async def test_rewind_tells_where_the_history_ends_now(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append(range(1, 9))
    rewound = await session.rewind(3)
    assert (rewound.history_length, rewound.kv_live_bytes) == (3, 3 * BYTES_PER_TOKEN)
    assert (rewound.retained, rewound.num_forgotten_tokens) == ((range(3),), 0)
    assert session.history_length == 3
    assert runtime.requests["RewindSession"][0].expected_history_length == 8
    await session.append([7])
    assert runtime.sessions[session.id].history == [1, 2, 3, 7]
    with pytest.raises(kakeya.BoundaryNotReachable) as refused:
        await session.rewind(5)
    assert refused.value.metadata == {"reachable": "4"}
    with pytest.raises(kakeya.InvalidField):
        await session.rewind(-1)


async def test_info(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([1, 2])
    runtime.boundaries = [1, 2]
    assert await session.info() == kakeya.SessionInfo(
        history_length=2,
        kv_live_bytes=2 * BYTES_PER_TOKEN,
        num_inv1_violations=1,
        num_inv2_violations=2,
        idle_seconds=0.5,
        state=SessionState.OPEN,
        reserved_bytes=32_768,
        retained=(range(2),),
        exact=True,
        fingerprint=FINGERPRINT,
        model="counter",
        worker="scripted",
        epoch=3,
        boundaries=(1, 2),
        inexact_resume=True,
        num_drafted_tokens=9,
        num_accepted_tokens=4,
    )


async def test_every_result_says_what_was_forgotten_and_what_is_still_seen(session: AsyncSession) -> None:
    for length, num_forgotten in ((SINK + WINDOW, 0), (SINK + WINDOW + 10, 10)):
        appended = await session.append([1] * (length - (session.history_length or 0)))
        info = await session.info()
        assert (appended.num_forgotten_tokens, info.num_forgotten_tokens) == (num_forgotten, num_forgotten)
        assert appended.retained == info.retained
    assert appended.retained == (range(SINK), range(SINK + 10, SINK + WINDOW + 10))
    generation = session.generate(max_tokens=2)
    await generation.all()
    assert generation.truncated is not None
    assert generation.truncated.num_dropped_tokens == 10
    assert generation.done is not None
    assert generation.done.num_forgotten_tokens == 12


async def test_what_an_older_router_does_not_say_is_none(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.is_old = True
    assert (await session.append([])).num_forgotten_tokens == 0, "there is nothing to forget"
    appended = await session.append([1, 2])
    assert (appended.history_length, appended.retained, appended.num_forgotten_tokens) == (2, (), None)


async def test_sessions_are_listed_page_by_page(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    assert [session async for session in client.list_sessions()] == []
    first = runtime_pb2.Session(
        session_id="counter.0",
        client_label="mine",
        model="counter",
        state=runtime_pb2.SESSION_STATE_PARKED,
        history_length=7,
        kv_live_bytes=5,
        reserved_bytes=6,
        idle_seconds=0.5,
    )
    changed = runtime_pb2.Session(session_id="counter.0", history_length=8)
    others = [runtime_pb2.Session(session_id=f"counter.{number}") for number in (1, 2)]
    runtime.pages = {
        "": runtime_pb2.ListSessionsResponse(sessions=[first], next_page_token="a"),
        "a": runtime_pb2.ListSessionsResponse(next_page_token="b"),
        "b": runtime_pb2.ListSessionsResponse(sessions=[changed, *others]),
    }
    del runtime.requests["ListSessions"]
    runtime.before["ListSessions"] += [passes, fails("DRAINING")]
    listed = [session async for session in client.list_sessions()]
    assert [session.id for session in listed] == ["counter.0", "counter.1", "counter.2"]
    assert listed[0] == kakeya.ListedSession(
        id="counter.0",
        label="mine",
        model="counter",
        state=SessionState.PARKED,
        history_length=7,
        kv_live_bytes=5,
        reserved_bytes=6,
        idle_seconds=0.5,
    )
    assert [request.page_token for request in runtime.requests["ListSessions"]] == ["", "a", "a", "b"]


async def test_who_needs_no_more_of_a_list_asks_for_no_more(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.pages[""] = runtime_pb2.ListSessionsResponse(
        sessions=[runtime_pb2.Session(session_id="counter.0")], next_page_token="a"
    )
    async for session in client.list_sessions():
        assert session.id == "counter.0"
        break
    assert len(runtime.requests["ListSessions"]) == 1


async def test_models(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.models = [model("counter"), model("other", is_default=True)]
    runtime.models[0].tokenizer_digest = "d" * 64
    lane = SINK, WINDOW, BYTES_PER_TOKEN
    assert await client.list_models() == [
        kakeya.ServedModel(name, SINK + WINDOW, VOCAB_SIZE, is_default, digest, *lane, frozenset({"turn-search"}))
        for name, is_default, digest in (("counter", False, "d" * 64), ("other", True, ""))
    ]


async def test_numpy_arrays_are_token_ids(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append(numpy.array([5, 6], dtype=numpy.uint32))
    await session.append(tuple(numpy.array([7])))
    assert [list(request.token_ids) for request in runtime.requests["AppendTokens"]] == [[5, 6], [7]]


@pytest.mark.parametrize("token_id", [-1, 2**32])
async def test_an_id_of_no_vocabulary_is_refused_before_it_is_sent(
    session: AsyncSession, runtime: ScriptedRuntime, token_id: int
) -> None:
    with pytest.raises(kakeya.TokenOutOfVocabulary, match=f"token_ids: {token_id}") as raised:
        await session.append([1, token_id])
    assert raised.value.metadata == {"field": "token_ids"}
    with pytest.raises(kakeya.TokenOutOfVocabulary):
        session.turn([token_id], max_tokens=1)
    assert not runtime.requests["AppendTokens"]


@pytest.mark.parametrize("token_ids", ["text", [1.5], [[1, 2]], 7, None])
async def test_what_is_no_id_is_refused(session: AsyncSession, token_ids: object) -> None:
    with pytest.raises(kakeya.InvalidField, match="not a sequence of integers"):
        await session.append(token_ids)  # type: ignore[arg-type]  # that is the test


async def test_a_value_that_does_not_fit_its_field_is_refused(client: AsyncClient, session: AsyncSession) -> None:
    with pytest.raises(kakeya.InvalidField, match="max_tokens") as raised:
        session.generate(max_tokens=-1)
    assert raised.value.metadata == {"field": "max_tokens"}
    for biases in ({"</s>": 1.0}, {1: "much"}):
        with pytest.raises(kakeya.InvalidField, match="logit_bias"):
            session.generate(max_tokens=1, logit_bias=biases)  # type: ignore[arg-type]  # that is the test
    with pytest.raises(kakeya.InvalidField, match="stop_token_sequences"):
        session.turn([1], max_tokens=1, stop_token_sequences=[1, 2])  # type: ignore[list-item]  # one level short
    with pytest.raises(kakeya.InvalidField, match="stop_token_sequences"):
        session.turn([1], max_tokens=1, stop_token_sequences=5)  # type: ignore[arg-type]  # no sequence at all
    with pytest.raises(kakeya.InvalidField, match="logit_bias"):
        session.turn([1], max_tokens=1, logit_bias=[1, 2])  # type: ignore[arg-type]  # no mapping
    with pytest.raises(kakeya.InvalidField, match="eos_token_ids"):
        await client.create_session(eos_token_ids=["</s>"])  # type: ignore[list-item]  # that is the test
    with pytest.raises(kakeya.InvalidField, match="ttl_seconds"):
        await client.create_session(ttl_seconds=2**32)


async def test_park(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([10, 11, 12])
    assert await session.park() == kakeya.ParkResult(history_length=3, freed_bytes=32_768)
    assert runtime.requests["ParkSession"][0].session_id == session.id
    assert session.history_length == 3
    runtime.before["ParkSession"].append(fails("SNAPSHOT_STORE_UNAVAILABLE", retry_after_seconds=1.5))
    with pytest.raises(kakeya.SnapshotStoreUnavailable) as raised:
        await session.park()
    assert raised.value.retry_after_seconds == 1.5
    runtime.before["ParkSession"].append(fails("OPERATION_RUNNING"))
    with pytest.raises(kakeya.OperationRunning):
        await session.park()
    runtime.before["ParkSession"].append(fails("STORE_UNAVAILABLE"))
    assert (await session.park()).history_length == 3
    assert len(runtime.requests["ParkSession"]) == 5


async def test_leaving_a_session_closes_it(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    async with await client.create_session() as session:
        await session.append([1, 2])
    assert runtime.sessions == {}
    assert await session.close() == 2
    assert len(runtime.requests["CloseSession"]) == 1


async def test_leaving_a_session_by_an_exception_closes_it(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    with pytest.raises(ZeroDivisionError):
        async with await client.create_session():
            raise ZeroDivisionError
    assert runtime.sessions == {}


async def test_closing_a_session_that_is_gone_is_no_error(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    async with await client.create_session() as session:
        runtime.sessions.clear()
    assert await session.close() is None


async def test_a_session_for_one_answer_that_is_left_is_closed(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    async with await client.create_session(ephemeral=True) as session:
        generation = session.turn([1, 2], max_tokens=3)
        assert await generation.next_token() == 3
        generation.cancel()
    assert (runtime.sessions, len(runtime.requests["CloseSession"])) == ({}, 1)


async def test_a_session_for_one_answer_is_closed_by_its_answer(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    async with await client.create_session(ephemeral=True) as session:
        assert len(await session.turn([1, 2], max_tokens=3).all()) == 3
    assert runtime.sessions == {}
    assert (await session.close(), len(runtime.requests["CloseSession"])) == (5, 0)


async def test_an_older_router_does_not_close_it(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.closes_itself = False
    async with await client.create_session(ephemeral=True) as session:
        await session.turn([1, 2], max_tokens=3).all()
    assert (session.ephemeral, runtime.sessions, len(runtime.requests["CloseSession"])) == (False, {}, 1)


async def test_a_failure_to_close_is_not_hidden(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.before["CloseSession"].append(fails("INTERNAL"))
    with pytest.raises(kakeya.Internal):
        async with await client.create_session():
            pass


async def test_a_failure_to_close_does_not_hide_the_exception_before_it(
    client: AsyncClient, runtime: ScriptedRuntime
) -> None:
    runtime.before["CloseSession"].append(fails("INTERNAL"))
    with pytest.raises(ZeroDivisionError) as raised:
        async with await client.create_session():
            raise ZeroDivisionError
    assert raised.value.__notes__ == ["closing the session failed too: Internal: scripted INTERNAL"]


async def test_attaching_reads_the_length_before_the_first_operation(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    await session.append([1, 2, 3])
    attached = client.session(session.id)
    assert (attached.history_length, attached.model) == (None, None)
    await attached.append([4])
    assert runtime.requests["AppendTokens"][-1].expected_history_length == 3
    assert attached.history_length == 4


async def test_without_check_history_no_length_is_sent(runtime: ScriptedRuntime) -> None:
    async with AsyncClient(runtime.address, check_history=False) as client:
        session = await client.create_session()
        await session.append([1])
        await client.session(session.id).turn([2], max_tokens=1).all()
    assert not runtime.requests["GetSessionInfo"]
    assert not runtime.requests["AppendTokens"][0].HasField("expected_history_length")
    assert not runtime.requests["Turn"][0].session.HasField("expected_history_length")


async def test_a_second_writer_is_noticed_and_then_respected(client: AsyncClient, session: AsyncSession) -> None:
    await session.append([1])
    await client.session(session.id).append([2])
    with pytest.raises(kakeya.HistoryLengthMismatch):
        await session.append([3])
    assert session.history_length is None
    assert (await session.append([3])).history_length == 3


async def test_a_closed_client_says_so(runtime: ScriptedRuntime) -> None:
    async with AsyncClient(runtime.address) as client:
        session = await client.create_session()
    await client.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        await session.info()
    with pytest.raises(RuntimeError, match="the client is closed"):
        await session.generate(max_tokens=1).all()


async def test_a_client_that_was_never_used_closes(runtime: ScriptedRuntime) -> None:
    async with AsyncClient(runtime.address):
        pass
    assert not runtime.requests
