"""Sessions that are written, restored, rewound and reconciled on an engine with a real model."""

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch

from kakeya_shared.errors.tree import (
    BoundaryNotReachable,
    Draining,
    HistoryLengthMismatch,
    Internal,
    InvalidField,
    KakeyaError,
    NoCapacity,
    OperationRunning,
    SessionClosed,
    SessionNotFound,
    SnapshotRefused,
    SnapshotStoreUnavailable,
    StaleEpoch,
)
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_state import OpenLane
from kakeya_worker.engine.seams.retention import SessionOptions
from kakeya_worker.engine.snapshots import snapshot
from kakeya_worker.snapshot_stores.file import FileSnapshotStore
from kakeya_worker.snapshots import snapshots as snapshots_module
from kakeya_worker.snapshots.snapshots import Snapshots, WrittenSnapshot
from kakeya_worker.torch_backend import TorchVerifier
from tests.unit.worker.engine_calls import (
    NUM_LANES,
    SINK,
    TIMEOUT,
    WINDOW,
    Tokens,
    error_of,
    live_state,
    open_session,
    start_append,
    start_generate,
    state_of,
)

OPTIONS: dict[str, Any] = {"temperature": 1.0, "seed": 7}
PREFIX = "pool/pool.s-1"


@pytest.fixture
def store(tmp_path: Path) -> FileSnapshotStore:
    return FileSnapshotStore(str(tmp_path))


@pytest.fixture
def snapshots(engine: Engine, store: FileSnapshotStore) -> Iterator[Snapshots]:
    snapshots = Snapshots(engine, store)
    yield snapshots
    snapshots.close(TIMEOUT)


def prepare(engine: Engine, num_tokens: int, session_id: str = "s", **options: Any) -> None:
    open_session(engine, session_id, **options)
    append(engine, 0, num_tokens, session_id)


def append(engine: Engine, length: int, num_tokens: int, session_id: str = "s") -> None:
    start_append(engine, length, num_tokens, session_id).future.result(TIMEOUT)


def generated(engine: Engine, length: int, session_id: str = "s", num_tokens: int = 12, **options: Any) -> list[int]:
    generate, tokens = start_generate(engine, length, num_tokens, session_id=session_id, **OPTIONS, **options)
    generate.future.result(TIMEOUT)
    return tokens.ids


async def write(snapshots: Snapshots, start: int = 0, session_id: str = "s") -> WrittenSnapshot:
    return await snapshots.write(session_id, 1, start, f"{PREFIX}-{start}")


async def restore(snapshots: Snapshots, *names: str, session_id: str = "r", inexact: bool = False) -> OpenLane:
    return await snapshots.restore(session_id, 1, names, "acme", inexact=inexact)


@pytest.mark.parametrize("length", [0, 20, 200])
async def test_a_restored_session_goes_on_as_the_one_that_was_written(
    engine: Engine, snapshots: Snapshots, length: int
) -> None:
    prepare(engine, length)
    written = await write(snapshots)
    assert written.name == f"{PREFIX}-0-{length}.safetensors"
    assert written.length == length
    assert await restore(snapshots, written.name) == OpenLane(state_of(length), SINK, WINDOW)
    assert live_state(engine, "r") == state_of(length)
    assert engine.lanes.find("r", 1).tenant == "acme"
    for session_id in ("s", "r"):
        append(engine, length, 5, session_id)
    assert generated(engine, length + 5, "r") == generated(engine, length + 5)


async def test_much_is_copied_to_memory_that_was_made_before(
    engine: Engine, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(engine, 150)
    plain = await write(snapshots)
    monkeypatch.setattr(snapshot, "_LITTLE_BYTES", 0)
    memory = snapshot.memory_for(engine.lanes.find("s", 1).lane, engine.facts.kv_bytes_per_token)
    assert memory is not None
    assert (SINK + WINDOW) * engine.facts.kv_bytes_per_token <= memory.nbytes
    written = await write(snapshots)
    assert (written.length, written.size_bytes) == (plain.length, plain.size_bytes)
    await restore(snapshots, written.name)
    assert generated(engine, 150, "r") == generated(engine, 150)


async def test_a_session_is_restored_from_what_came_since(engine: Engine, snapshots: Snapshots) -> None:
    open_session(engine, sink=2, window=30)
    names, length = [], 0
    for number in (40, 3, 25):
        append(engine, length, number)
        names.append((await write(snapshots, length)).name)
        length += number
    opened = await restore(snapshots, *names)
    assert (opened.sink, opened.window, opened.state.history_length) == (2, 30, length)
    assert generated(engine, length, "r") == generated(engine, length)


async def test_a_session_that_refuses_to_forget_does_so_still(engine: Engine, snapshots: Snapshots) -> None:
    prepare(engine, 20, window=30, sink=2, refuses_overflow=True)
    await restore(snapshots, (await write(snapshots)).name)
    assert engine.lanes.find("r", 1).lane.room == 12


async def test_what_is_written_costs_what_it_holds(
    engine: Engine, snapshots: Snapshots, store: FileSnapshotStore
) -> None:
    prepare(engine, 150)
    whole = await write(snapshots)
    later = await write(snapshots, 140)
    bytes_per_token = engine.facts.kv_bytes_per_token
    sizes = {file.name: file.size_bytes for file in store.files("pool/")}
    assert sizes == {whole.name: whole.size_bytes, later.name: later.size_bytes}
    for written, num_tokens in ((whole, SINK + WINDOW), (later, 10)):
        assert num_tokens * bytes_per_token <= written.size_bytes <= num_tokens * (bytes_per_token + 12) + 4096


async def test_a_running_generate_is_written_between_two_steps(engine: Engine, snapshots: Snapshots) -> None:
    prepare(engine, 20)
    generate, tokens = start_generate(engine, 20, 50, wanted=5, **OPTIONS)
    assert tokens.enough.wait(TIMEOUT)
    written = await write(snapshots)
    generate.future.result(TIMEOUT)
    opened = await restore(snapshots, written.name)
    assert opened.state.history_length == written.length > 20
    more = generated(engine, written.length, "r", 55 - (written.length - 20))
    assert tokens.ids[written.length - 20 :] == more[: 70 - written.length]
    assert len(more) >= 5


async def test_opening_again_changes_nothing(engine: Engine, snapshots: Snapshots) -> None:
    prepare(engine, 20)
    name = (await write(snapshots)).name
    await restore(snapshots, name)
    append(engine, 20, 3, "r")
    assert (await restore(snapshots, name)).state == state_of(23)
    with pytest.raises(StaleEpoch):
        await snapshots.restore("r", 0, [name], "", inexact=False)


@pytest.mark.parametrize("at", [-3, 20_000], ids=["what is looked at first", "K"])
async def test_a_damaged_snapshot_is_refused_and_takes_no_lane(
    engine: Engine, snapshots: Snapshots, store: FileSnapshotStore, tmp_path: Path, at: int
) -> None:
    prepare(engine, 20)
    name = (await write(snapshots)).name
    content = bytearray((tmp_path / name).read_bytes())
    content[at] ^= 1
    store.write(name, bytes(content))
    with pytest.raises(SnapshotRefused, match=r"20\.safetensors: its checksum"):
        await restore(snapshots, name)
    assert "r" not in engine.lanes
    assert engine.lanes.totals().num_lanes_in_use == 1


async def test_a_disk_that_fails_in_the_middle_is_told_and_takes_no_lane(
    engine: Engine, snapshots: Snapshots, store: FileSnapshotStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(BytesIO):
        def readinto(self, memory: Any, /) -> int:
            if self.tell() > 20_000:
                raise OSError(errno.EIO, "Input/output error")
            return super().readinto(memory)

    prepare(engine, 20)
    name = (await write(snapshots)).name
    with monkeypatch.context() as patched, pytest.raises(SnapshotStoreUnavailable, match="Input/output"):
        patched.setattr(store, "open", lambda name: Failing((tmp_path / name).read_bytes()))
        await restore(snapshots, name)
    assert engine.lanes.totals().num_lanes_in_use == 1
    assert (await restore(snapshots, name)).state == state_of(20)


async def test_a_snapshot_that_does_not_begin_at_the_beginning_is_refused(engine: Engine, snapshots: Snapshots) -> None:
    prepare(engine, 20)
    with pytest.raises(SnapshotRefused, match="does not follow"):
        await restore(snapshots, (await write(snapshots, 10)).name)


async def test_a_snapshot_of_other_numerics_is_refused_unless_any_will_do(
    engine: Engine, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(engine, 20)
    name = (await write(snapshots)).name
    written_elsewhere = engine.facts.__class__(**{**vars(engine.facts), "fingerprint": "0" * 64})
    monkeypatch.setattr(engine._verifier, "facts", written_elsewhere)
    with pytest.raises(SnapshotRefused, match="fingerprint"):
        await restore(snapshots, name)
    assert "r" not in engine.lanes
    assert (await restore(snapshots, name, inexact=True)).state == state_of(20)


@pytest.mark.parametrize("num_bytes", [0, 60_000, 200_000], ids=["none", "one", "all"])
async def test_files_that_have_no_room_in_the_memory_kept_for_them_come_back_too(
    engine: Engine, store: FileSnapshotStore, monkeypatch: pytest.MonkeyPatch, num_bytes: int
) -> None:
    monkeypatch.setattr(snapshots_module, "_READING_BYTES", num_bytes)
    snapshots = Snapshots(engine, store)
    prepare(engine, 20)
    names = [(await write(snapshots)).name]
    append(engine, 20, 25)
    names.append((await write(snapshots, 20)).name)
    for session_id in ("r", "t"):  # the second uses what the first has left
        assert (await restore(snapshots, *names, session_id=session_id)).state == state_of(45)
    expected = generated(engine, 45)
    assert [generated(engine, 45, session_id) for session_id in ("r", "t")] == [expected, expected]
    snapshots.close(TIMEOUT)


async def test_two_restores_at_once_share_no_memory(
    engine: Engine, snapshots: Snapshots, verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(engine, 20)
    name = (await write(snapshots)).name
    engine.close("s", 1).result(TIMEOUT)
    both, write_lane, memory = threading.Barrier(2), verifier.write_lane, []

    def slow(lane: int, slots: Any, contents: Any) -> None:
        memory.append(contents.keys.ctypes.data)
        both.wait(TIMEOUT)
        write_lane(lane, slots, contents)

    monkeypatch.setattr(verifier, "write_lane", slow)
    await asyncio.gather(*(restore(snapshots, name, session_id=session_id) for session_id in ("r", "t")))
    assert len(set(memory)) == 2


async def test_a_full_worker_restores_nothing(engine: Engine, snapshots: Snapshots) -> None:
    prepare(engine, 20)
    name = (await write(snapshots)).name
    for number in range(NUM_LANES - 1):
        open_session(engine, f"other-{number}")
    with pytest.raises(NoCapacity):
        await restore(snapshots, name)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda it: it.write("nobody", 1, 0, PREFIX), SessionNotFound),
        (lambda it: it.write("s", 2, 0, PREFIX), StaleEpoch),
        (lambda it: it.write("s", 1, 21, PREFIX), InvalidField),
        (lambda it: it.write("s", 1, 0, "../s"), InvalidField),
        (lambda it: it.write("s", 1, 0, "pool/.."), InvalidField),
        (lambda it: it.restore("r", 1, ["../../etc/passwd"], "", inexact=False), InvalidField),
        (lambda it: it.restore("r", 1, [f"{PREFIX}.safetensors"] * 2000, "", inexact=False), InvalidField),
        (lambda it: it.restore("r", 1, [f"{PREFIX}-0-1.safetensors"], "", inexact=False), SnapshotRefused),
        (lambda it: it.delete([]), InvalidField),
        (lambda it: it.delete(["pool/x.part"]), InvalidField),
    ],
)
async def test_what_is_refused(engine: Engine, snapshots: Snapshots, call: Any, error: type[KakeyaError]) -> None:
    prepare(engine, 20)
    with pytest.raises(error):
        await call(snapshots)
    assert "r" not in engine.lanes


async def test_deleted_snapshots_are_gone(engine: Engine, snapshots: Snapshots, store: FileSnapshotStore) -> None:
    prepare(engine, 20)
    names = [(await write(snapshots, start)).name for start in (0, 10)]
    await snapshots.delete(names[:1])
    assert [file.name for file in store.files("pool/")] == names[1:]


async def test_without_a_store_there_are_no_snapshots(engine: Engine) -> None:
    prepare(engine, 20)
    without = Snapshots(engine, None)
    for call in (write(without), restore(without, f"{PREFIX}-0-1.safetensors"), without.delete(["p/s.safetensors"])):
        with pytest.raises(SnapshotStoreUnavailable, match="--snapshots"):
            await call


@pytest.mark.parametrize(
    "damaged",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content[:20_000] + bytes([content[20_000] ^ 1]) + content[20_001:],
        lambda content: b" " + content[1:],
        lambda content: content[:500] + b"-" + content[501:],
    ],
    ids=["empty", "cut off", "another last byte", "another byte of K", "another length", "another header"],
)
async def test_what_cannot_be_read_back_is_no_snapshot(
    engine: Engine,
    store: FileSnapshotStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damaged: Callable[[bytes], bytes],
) -> None:
    prepare(engine, 20)
    snapshots = Snapshots(engine, store)
    monkeypatch.setattr(store, "open", lambda name: BytesIO(damaged((tmp_path / name).read_bytes())))
    with pytest.raises(SnapshotStoreUnavailable, match="read back"):
        await write(snapshots)


async def test_writing_holds_up_no_step(engine: Engine, store: FileSnapshotStore) -> None:
    """While the disk is stuck, the session that is written and another one go on."""
    prepare(engine, 20)
    prepare(engine, 20, "t")
    stuck, freed = threading.Event(), threading.Event()
    write_file = store.write

    def slow(name: str, *pieces: bytes | memoryview) -> None:
        stuck.set()
        assert freed.wait(TIMEOUT)
        write_file(name, *pieces)

    store.write = slow  # type: ignore[method-assign]  # a disk that hangs cannot be had otherwise
    snapshots = Snapshots(engine, store)
    writing = asyncio.create_task(write(snapshots))
    await asyncio.to_thread(stuck.wait, TIMEOUT)
    for session_id in ("s", "t"):
        append(engine, 20, 30, session_id)
    freed.set()
    written = await writing
    assert written.length == 20
    assert (await restore(snapshots, written.name)).state == state_of(20)


async def test_a_worker_that_shuts_down_restores_nothing(engine: Engine, snapshots: Snapshots) -> None:
    prepare(engine, 20)
    name = (await write(snapshots)).name
    engine.shut_down()
    with pytest.raises(Draining):
        await restore(snapshots, name)


# Rewinding


@pytest.mark.parametrize("target", [0, 1, 20, 39, 40])
def test_a_rewound_session_is_as_it_was(engine: Engine, target: int) -> None:
    prepare(engine, 40)
    generated(engine, 40)
    rewound = replace(state_of(target), num_rewinds=1)
    assert engine.rewind("s", 1, 52, target).result(TIMEOUT) == rewound
    assert live_state(engine) == rewound
    prepare(engine, target, "t")
    lanes = [engine.lanes.find(session_id, 1).lane for session_id in ("s", "t")]
    assert lanes[0].history_digest == lanes[1].history_digest
    if not target:
        for session_id in ("s", "t"):
            append(engine, 0, 5, session_id)
        target = 5
    assert generated(engine, target) == generated(engine, target, "t")


def test_what_was_forgotten_does_not_come_back(engine: Engine) -> None:
    prepare(engine, SINK + WINDOW)
    append(engine, SINK + WINDOW, 1)
    error = error_of(engine.rewind("s", 1, SINK + WINDOW + 1, SINK + WINDOW))
    assert isinstance(error, BoundaryNotReachable)
    assert error.metadata == {"reachable": str(SINK + WINDOW + 1)}
    assert engine.rewind("s", 1, SINK + WINDOW + 1, SINK + WINDOW + 1).result(TIMEOUT) == state_of(SINK + WINDOW + 1)


def test_what_cannot_be_rewound(engine: Engine) -> None:
    prepare(engine, 20)
    assert isinstance(error_of(engine.rewind("s", 1, 20, 21)), BoundaryNotReachable)
    assert isinstance(error_of(engine.rewind("s", 1, 19, 10)), HistoryLengthMismatch)
    assert isinstance(error_of(engine.rewind("s", 2, 20, 10)), StaleEpoch)
    generate, _ = start_generate(engine, 20, 10_000)
    assert isinstance(error_of(engine.rewind("s", 1, 20, 10)), OperationRunning)
    engine.cancel(generate)


def test_a_rewind_whose_forward_pass_fails_gives_the_lane_up(
    engine: Engine, verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(engine, 20)

    def fail(rows: object) -> torch.Tensor:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(verifier, "forward", fail)
    assert isinstance(error_of(engine.rewind("s", 1, 20, 10)), Internal)
    assert "s" not in engine.lanes


# What was generated and nobody has on record


def run_to(engine: Engine, length: int, num_tokens: int, **options: Any) -> Tokens:
    generate, tokens = start_generate(engine, length, num_tokens, **options)
    generate.future.result(TIMEOUT)
    return tokens


def test_a_stop_tells_what_was_generated_since(engine: Engine) -> None:
    prepare(engine, 20)
    tokens = run_to(engine, 20, 12, **OPTIONS)
    for journaled, expected in ((20, tokens.ids), (29, tokens.ids[9:]), (32, []), (40, []), (19, []), (None, [])):
        stopped = engine.stop_operation("s", 1, journaled).result(TIMEOUT)
        assert (stopped.state, list(stopped.token_ids)) == (state_of(32), expected)


def test_a_stop_in_the_middle_tells_all_that_is_committed(engine: Engine) -> None:
    prepare(engine, 20)
    generate, tokens = start_generate(engine, 20, 10_000, wanted=5, **OPTIONS)
    assert tokens.enough.wait(TIMEOUT)
    stopped = engine.stop_operation("s", 1, 20).result(TIMEOUT)
    error_of(generate.future)
    assert list(stopped.token_ids) == tokens.ids[: stopped.state.history_length - 20]
    assert len(stopped.token_ids) >= 5


def test_what_is_journaled_is_forgotten(engine: Engine) -> None:
    prepare(engine, 20)
    generate, tokens = start_generate(engine, 20, 40, wanted=10, **OPTIONS)
    assert tokens.enough.wait(TIMEOUT)
    engine.acknowledge(generate, 10, journaled_length=28)
    generate.future.result(TIMEOUT)
    assert list(engine.stop_operation("s", 1, 28).result(TIMEOUT).token_ids) == tokens.ids[8:]
    assert engine.stop_operation("s", 1, 27).result(TIMEOUT).token_ids == ()


def test_with_the_next_operation_all_of_it_is_on_record(engine: Engine) -> None:
    prepare(engine, 20)
    run_to(engine, 20, 12)
    append(engine, 32, 1)
    assert engine.stop_operation("s", 1, 32).result(TIMEOUT).token_ids == ()
    assert engine.stop_operation("s", 1, 20).result(TIMEOUT).token_ids == ()


# Generates that began elsewhere


@pytest.mark.parametrize("options", [OPTIONS, OPTIONS | {"frequency_penalty": 1.5, "presence_penalty": 0.5}], ids=str)
def test_a_generate_goes_on_in_another_lane(engine: Engine, options: dict[str, Any]) -> None:
    prepare(engine, 20)
    whole = run_to(engine, 20, 24, **options).ids
    prepare(engine, 20, "t")
    first = run_to(engine, 20, 10, session_id="t", **options).ids
    generate, rest = start_generate(engine, 30, 24, session_id="t", previous_token_ids=tuple(first), **options)
    result = generate.future.result(TIMEOUT)
    assert first + rest.ids == whole
    assert result.num_generated == 24


def test_a_generate_that_was_complete_elsewhere_ends_at_once(engine: Engine) -> None:
    prepare(engine, 20)
    tokens = run_to(engine, 20, 5, **OPTIONS).ids
    cases: list[tuple[str, int, dict[str, Any]]] = [
        ("MAX_TOKENS", 5, {}),
        ("EOS", 9, {"eos": tokens[-1:]}),
        ("STOP_SEQUENCE", 9, {"stop_token_sequences": (tuple(tokens[-2:]),)}),
    ]
    for reason, max_tokens, options in cases:
        generate, more = start_generate(engine, 25, max_tokens, previous_token_ids=tuple(tokens), **options)
        assert generate.future.result(TIMEOUT).finish.name == reason
        assert more.ids == []


# Newer leases


def test_a_newer_lease_takes_the_place_of_an_older_one(engine: Engine) -> None:
    prepare(engine, 20)
    generate, _ = start_generate(engine, 20, 10_000)
    opened = engine.open("s", 2, SessionOptions()).result(TIMEOUT)
    assert opened.state == state_of(0)
    assert isinstance(error_of(generate.future), SessionClosed)
    assert engine.lanes.totals().num_lanes_in_use == 1
    assert isinstance(error_of(engine.open("s", 1, SessionOptions())), StaleEpoch)
    assert isinstance(error_of(engine.stop_operation("s", 1)), StaleEpoch)


async def test_a_session_is_restored_where_it_was_left(engine: Engine, snapshots: Snapshots) -> None:
    prepare(engine, 20)
    name = (await write(snapshots)).name
    append(engine, 20, 5)
    opened = await snapshots.restore("s", 2, [name], "acme", inexact=False)
    assert opened.state == state_of(20)
    assert engine.lanes.totals().num_lanes_in_use == 1
