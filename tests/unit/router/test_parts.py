"""The parts that can be shown alone: placement, gate, persistence, settings, keys."""

import asyncio
from dataclasses import replace

import pytest

from kakeya_router.api.call_gate import CallGate
from kakeya_router.operations.recovery import client_is_gone
from kakeya_router.program import Router, _reachable
from kakeya_router.settings import RouterSettings
from kakeya_router.store import persistence
from kakeya_router.store.connection import plain
from kakeya_router.store.keys import PoolKeys, new_session_id, pool_of
from kakeya_router.store.session_record import (
    Incarnation,
    Overflow,
    PoolName,
    SessionId,
    SessionRecord,
    State,
    WorkerId,
    parse_ranges,
    ranges_text,
)
from kakeya_router.workers import placement
from kakeya_router.workers.worker_client import RunningCall
from kakeya_shared import plugins
from kakeya_shared.errors.tree import Draining, StoreUnavailable
from kakeya_shared.process.service_process import StartError
from tests.unit.router.admission_stores import session_record
from tests.unit.router.store.script_world import SESSION, WORKER

WORKERS = [
    replace(WORKER, worker_id=WorkerId("c"), reserved_bytes=0),
    replace(WORKER, worker_id=WorkerId("b"), reserved_bytes=100),
    replace(WORKER, worker_id=WorkerId("a"), reserved_bytes=0),
]


@pytest.mark.parametrize(("name", "order"), [("least-loaded", "acb"), ("first-fit", "abc")])
def test_placement_plugins(name: str, order: str) -> None:
    plugin: placement.Placement = plugins.load(placement.GROUP, name)()
    assert "".join(worker.worker_id for worker in plugin.order(WORKERS)) == order


def test_free_bytes() -> None:
    assert [worker.free_bytes for worker in WORKERS] == [200, 100, 200]
    assert not replace(WORKER, reserved_bytes=101).has_room


def test_an_unknown_placement_is_a_start_error() -> None:
    with pytest.raises(StartError, match="first-fit, least-loaded"):
        Router(RouterSettings(placement="nearest"))


def test_session_ids_carry_their_pool_and_are_all_different() -> None:
    ids = {new_session_id(PoolName("qwen3-0-6b")) for _ in range(100)}
    assert len(ids) == 100
    assert {pool_of(session_id) for session_id in ids} == {"qwen3-0-6b"}
    assert all(len(session_id.partition(".")[2]) == 22 for session_id in ids)


def test_all_keys_of_a_pool_share_one_hash_tag() -> None:
    keys = PoolKeys(PoolName("p"))
    names = [
        keys.workers,
        keys.lost,
        keys.expiry,
        keys.worker(WorkerId("x")),
        keys.sessions(Incarnation("x")),
        keys.session(SessionId("x")),
    ]
    names += [
        keys.operation(SessionId("x")),
        keys.request("x", "y"),
        keys.usage,
        keys.tokens("x"),
        keys.queue,
        keys.waiters,
    ]
    for name in [*names, keys.idle, keys.evicted]:
        assert name.startswith("kakeya:{p}:")


@pytest.mark.parametrize("text", ["", "0-7", "0-4,100-164"])
def test_ranges_are_read_as_they_were_written(text: str) -> None:
    parts = parse_ranges(text)
    assert ranges_text(parts) == text
    assert [(part.start, part.stop) for part in parts] == [
        tuple(map(int, part.split("-"))) for part in text.split(",") if part
    ]


@pytest.mark.parametrize("exact", [False, True])
def test_a_record_is_read_as_it_was_written(exact: bool) -> None:
    record = replace(SESSION, state=State.FAILED, on_overflow=Overflow.REFUSE, exact=exact, retained="0-3")
    flat = [str(each) for each in plain(record.to_pairs())]
    assert SessionRecord.from_pairs([*flat, "from_a_newer_router", "1"]) == record


async def test_the_gate_waits_for_those_inside_and_lets_nobody_in() -> None:
    gate = CallGate()
    with gate.inside():
        closing = asyncio.create_task(gate.close(5))
        await asyncio.sleep(0.01)
        assert not closing.done()
        with pytest.raises(Draining) as raised, gate.inside():
            pass
        assert 0 < (raised.value.retry_after_seconds or 0) < 0.5  # another router serves at once
    await closing


async def test_who_outlasts_the_grace_is_told_to_go_elsewhere() -> None:
    gate, leaving = CallGate(), asyncio.Event()

    async def call(*, stubborn: bool) -> None:
        with gate.inside():
            try:
                await asyncio.sleep(60)
            finally:
                if stubborn:
                    await leaving.wait()

    calls = [asyncio.create_task(call(stubborn=stubborn)) for stubborn in (False, True)]
    await asyncio.sleep(0)
    await asyncio.wait_for(gate.close(0.01), 60)
    assert [call.done() for call in calls] == [True, False]
    leaving.set()
    for each in calls:
        with pytest.raises(asyncio.CancelledError) as caught:
            await each
        assert isinstance(caught.value.args[0], Draining)


async def test_persist_repeats_until_it_is_taken_and_gives_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "_PAUSE_SECONDS", 0)
    attempts = 0

    async def change() -> None:
        nonlocal attempts
        attempts += 1
        if attempts != 5:
            raise StoreUnavailable("away")

    await persistence.persist(change)
    assert attempts == 5
    monkeypatch.setattr(persistence, "_GIVE_UP_SECONDS", 0.05)
    await persistence.persist(change)
    assert attempts > 5


async def test_a_client_is_gone_by_its_own_cancellation_only() -> None:
    assert client_is_gone(GeneratorExit())  # while a response was being written
    assert not client_is_gone(asyncio.CancelledError())  # the worker's call was cancelled, not this task
    assert not client_is_gone(RuntimeError())


def test_a_call_that_was_cancelled_before_it_started_is_cancelled_when_it_does() -> None:
    class Call:
        cancelled = False

        def cancel(self) -> None:
            self.cancelled = True

    running, call = RunningCall(), Call()
    running.cancel()
    running.started(call, session_record("a"))  # type: ignore[arg-type]  # only `cancel` is used
    assert call.cancelled


@pytest.mark.parametrize(
    "argv",
    [
        ["--redis", "http://x"],
        ["--bind", "nowhere"],
        ["--session-ttl-seconds", "0"],
        ["--worker-lease-seconds", "1", "--heartbeat-interval-seconds", "1"],
        ["--log-level", "loud"],
    ],
)
def test_bad_settings_are_refused_with_the_flag_that_is_wrong(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        RouterSettings.parse(argv)
    assert raised.value.code == 2
    error = capsys.readouterr().err
    assert "kakeya router: error: " in error
    assert (argv[0] in error) or "worker_lease_seconds" in error


def test_flags_win_over_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAKEYA_ROUTER_MAX_APPEND_TOKENS", "5")
    monkeypatch.setenv("KAKEYA_ROUTER_SESSION_TTL_SECONDS", "6")
    settings = RouterSettings.parse(["--max-append-tokens", "7"])
    assert (settings.max_append_tokens, settings.session_ttl_seconds) == (7, 6)


def test_every_setting_gives_its_reason() -> None:
    for name, field in RouterSettings.model_fields.items():
        assert isinstance(field.json_schema_extra, dict), name
        assert field.json_schema_extra["help"], name
        assert field.json_schema_extra["reason"], name


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_every_interface_is_advertised_by_the_hosts_name(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    assert _reachable(f"{host}:7") == "here:7"
    assert _reachable("127.0.0.1:7") == "127.0.0.1:7"
