"""Files of snapshots: what comes back, how large they are, and what is refused."""

import json
import mmap
import random
from dataclasses import fields, replace
from io import BytesIO
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from kakeya_shared.contract.history_digest import EMPTY_HISTORY
from kakeya_shared.errors.tree import SnapshotRefused
from kakeya_worker.conformance.tools.driving import open_session
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.raw_numbers import RawNumbers
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.verifier import LaneContents
from kakeya_worker.engine.snapshots.made_memory import made_memory
from kakeya_worker.engine.snapshots.snapshot import Snapshot, TakenSnapshot, restore, take
from kakeya_worker.snapshots import snapshot_file
from kakeya_worker.snapshots.snapshot_file import FileSnapshot
from kakeya_worker.torch_backend import TorchVerifier

GEOMETRY = LaneGeometry(sink=4, window=28, chunk=32)
RETENTION = sink_window(SessionOptions(), GEOMETRY)
FINGERPRINT, MODEL_DIGEST = "f" * 64, "d" * 64
ARRAYS = ("keys", "values", "final_hidden")
NARROW = LaneContents(keys=np.empty(0, np.uint16), values=np.empty(0, np.uint16), final_hidden=np.empty(0, np.uint16))


def snapshot(num_tokens: int, dtype: type[np.unsignedinteger[Any]] = np.uint16, start: int = 0) -> TakenSnapshot:
    draw = np.random.default_rng(num_tokens)

    def numbers(*shape: int) -> RawNumbers:
        return draw.integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)

    return TakenSnapshot(
        fingerprint=FINGERPRINT,
        model_digest=MODEL_DIGEST,
        sink=4,
        window=28,
        refuses_overflow=False,
        start=start,
        length=start + num_tokens,
        history_digest=1 << 57,
        positions=np.arange(start, start + num_tokens),
        token_ids=draw.integers(0, 1 << 32, num_tokens),
        contents=LaneContents(numbers(3, 2, num_tokens, 8), numbers(3, 2, num_tokens, 8), numbers(16)),
    )


def opened(content: bytes) -> FileSnapshot:
    return snapshot_file.opened(BytesIO(content))


def loaded(content: bytes) -> TakenSnapshot:
    """All of a file, which may come in several parts."""
    found = opened(content)
    parts = [replace(part, keys=part.keys.copy(), values=part.values.copy()) for part in found.parts()]
    starts = accumulate((len(part.keys) for part in parts), initial=0)
    assert [part.first_layer for part in parts] == list(starts)[:-1]
    keys, values = (np.concatenate([getattr(part, name) for part in parts]) for name in ("keys", "values"))
    facts = {f.name: getattr(found, f.name) for f in fields(Snapshot)}
    return TakenSnapshot(**facts, contents=LaneContents(keys, values, found.final_hidden))


def same(one: TakenSnapshot, other: TakenSnapshot) -> bool:
    arrays = (
        *((one.positions, other.positions), (one.token_ids, other.token_ids)),
        *((getattr(one.contents, name), getattr(other.contents, name)) for name in ARRAYS),
    )
    plain = {f.name for f in fields(Snapshot)} - {"positions", "token_ids"}
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays) and all(
        getattr(one, name) == getattr(other, name) for name in plain
    )


@pytest.mark.parametrize("num_tokens", [0, 1, 32])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("start", [0, 100_000])
def test_a_file_brings_the_snapshot_back(num_tokens: int, dtype: type[np.unsignedinteger[Any]], start: int) -> None:
    whole = snapshot(num_tokens, dtype, start)
    assert same(loaded(snapshot_file.encode(whole)), whole)


@pytest.mark.parametrize("part_bytes", [1, 1_000, 1_024, 1 << 22])
@pytest.mark.parametrize("num_bytes", [0, 10_000], ids=["no memory", "memory"])
def test_it_is_read_some_layers_after_others(monkeypatch: pytest.MonkeyPatch, part_bytes: int, num_bytes: int) -> None:
    monkeypatch.setattr(snapshot_file, "_PART_BYTES", part_bytes)
    whole = snapshot(8)  # a layer has 256 bytes of K and as many of V
    content, memory = snapshot_file.encode(whole), made_memory(num_bytes)
    assert same(loaded(content), whole)
    parts = list(snapshot_file.opened(BytesIO(content), memory=memory).parts())
    assert [len(part.keys) for part in parts] == {1: [1] * 3, 1_000: [1] * 3, 1_024: [2, 1], 1 << 22: [3]}[part_bytes]
    assert all(np.shares_memory(part.keys, memory) == (num_bytes > 0) for part in parts)


@pytest.mark.parametrize("num_tokens", [1, 32, 4_000])
def test_its_size_is_that_of_the_numbers(num_tokens: int) -> None:
    taken = snapshot(num_tokens)
    numbers = taken.contents.keys.nbytes + taken.contents.values.nbytes + taken.contents.final_hidden.nbytes
    assert 0 < len(snapshot_file.encode(taken)) - numbers - 12 * num_tokens < 2_048


@pytest.mark.parametrize("num_tokens", [1, 5, 28, 4_000])
def test_what_is_much_begins_where_memory_does(num_tokens: int) -> None:
    """K and V of a file, by the same 64 bytes as in memory: CPUs may copy what lies a few bytes off far more slowly."""
    length, header, positions, *_ = snapshot_file.pieces(snapshot(num_tokens))
    assert (len(length) + len(header) + len(positions)) % 64 == 0
    for num_bytes in (1, 5_000, 1 << 23):
        memory = made_memory(num_bytes)
        assert len(memory) == num_bytes
        assert memory.ctypes.data % mmap.PAGESIZE == 0


def test_one_wrong_bit_anywhere_is_found() -> None:
    content = snapshot_file.encode(snapshot(5))
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        try:
            found = loaded(bytes(damaged))
        except SnapshotRefused:
            continue
        assert same(found, snapshot(5)), f"byte {at}"  # a space of the header's padding


@pytest.mark.parametrize("cut", [0, 7, 8, 100, -1])
def test_a_file_that_is_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(SnapshotRefused):
        loaded(snapshot_file.encode(snapshot(5))[:cut])


BODY = snapshot_file.encode(snapshot(5))
_HEADER_END = 8 + int.from_bytes(BODY[:8], "little")


def forged(changes: dict[str, dict[str, Any]]) -> bytes:
    """Of a snapshot of 5 tokens, with another header whose checksum fits."""
    header = json.loads(BODY[8:_HEADER_END])
    for name, changed in changes.items():
        header[name] = header.get(name, {}) | changed
    data, facts = BODY[_HEADER_END:], header["__metadata__"]
    del facts["xxh3_128"]
    little = {
        name: np.frombuffer(data[slice(*header[name]["data_offsets"])], np.uint8)
        for name in ("positions", "token_ids", "final_hidden")
    }
    facts["xxh3_128"] = snapshot_file._checksum(header, little)
    told = json.dumps(header).encode()
    return len(told).to_bytes(8, "little") + told + data


@pytest.mark.parametrize(
    "changes",
    [
        {"keys": {"shape": [3, 2, 5, 4]}},
        {"keys": {"shape": [-3, -2, 5, 8]}},
        {"keys": {"shape": [3.0, 2, 5, 8]}},
        {"keys": {"shape": [30, 20, 5, 8], "data_offsets": [40, 48_040]}},
        {"keys": {"shape": [0.5, 10**400, 1, 1]}},
        {"values": {"dtype": "F16"}},
        {"values": {"shape": [3, 10, 8]}},
        {"values": {"shape": [2, 3, 5, 8]}},
        {"values": {"data_offsets": [-480, 0]}},
        {"values": {"data_offsets": [40, 520]}},
        {"keys": {"shape": [5, 2, 3, 8]}, "values": {"shape": [5, 2, 3, 8]}},
        {"keys": {"shape": [0, 2, 5, 1 << 40], "data_offsets": [40, 40]}},
        {"positions": {"shape": [5, 1]}, "token_ids": {"shape": [5, 1]}},
        {"token_ids": {"dtype": "BF16", "shape": [10]}},
        {"more": {"dtype": "BF16", "shape": [0], "data_offsets": [1052, 1052]}},
        {"more": {"dtype": "BF16", "shape": [5], "data_offsets": [0, 10]}},
        {"__metadata__": {"length": "Infinity"}},
        {"__metadata__": {"length": float("inf")}},
        {"__metadata__": {"length": "-5"}},
        {"__metadata__": {"length": str(1 << 60)}},
        {"__metadata__": {"start": "6"}},
        {"__metadata__": {"tokens_digest": "no"}},
        {"__metadata__": {"tokens_digest": "1" + 16 * "0"}},
    ],
    ids=str,
)
def test_a_header_that_makes_no_sense_is_refused_whoever_signed_it(changes: dict[str, dict[str, Any]]) -> None:
    assert same(loaded(forged({})), snapshot(5))
    with pytest.raises(SnapshotRefused, match="no snapshot"):
        loaded(forged(changes))


def test_what_follows_the_data_is_refused() -> None:
    with pytest.raises(SnapshotRefused, match="no snapshot"):
        loaded(BODY + b"more")
    assert snapshot_file.is_same(BytesIO(BODY), snapshot_file.pieces(snapshot(5)))
    assert not snapshot_file.is_same(BytesIO(BODY + b"more"), snapshot_file.pieces(snapshot(5)))


def test_layers_that_are_none_take_no_memory() -> None:
    none = replace(snapshot(5).contents, keys=np.empty((0, 2, 5, 1 << 40), np.uint16))
    empty = replace(snapshot(5), contents=replace(none, values=none.keys))
    assert list(opened(snapshot_file.encode(empty)).parts()) == []


def test_what_is_no_snapshot_is_refused() -> None:
    draw = random.Random(3)
    header = json.dumps({"__metadata__": {"format": "another"}}).encode()
    for content in (b"", draw.randbytes(500), b"\xff" * 500, len(header).to_bytes(8, "little") + header):
        with pytest.raises(SnapshotRefused):
            loaded(content)


def test_a_file_of_a_worker_that_knew_no_digest_says_none() -> None:
    assert opened(snapshot_file.encode(replace(snapshot(5), history_digest=None))).history_digest is None
    assert opened(BODY).history_digest == snapshot(5).history_digest


def test_what_came_since_makes_a_whole_one(verifier: TorchVerifier) -> None:
    verifier.allocate(GEOMETRY, 2)
    session, target = open_session(verifier, GEOMETRY), open_session(verifier, GEOMETRY, 1)
    taken: list[TakenSnapshot] = []
    for number in (1, 20, 40, 5, 13):
        session.append(range(number))
        taken.append(take(session.lane, verifier, taken[-1].length if taken else 0))
    assert [len(each.positions) for each in taken] == [1, 20, 28, 5, 13], "what was forgotten meanwhile is in none"
    restore(taken, target.lane, verifier)
    assert same(take(target.lane, verifier), take(session.lane, verifier))
    assert target.append((1,)).tobytes() == session.append((1,)).tobytes()


def test_what_is_of_another_type_becomes_as_the_lane_s(verifier: TorchVerifier) -> None:
    verifier.allocate(GEOMETRY, 2)
    session, target = open_session(verifier, GEOMETRY), open_session(verifier, GEOMETRY, 1)
    session.append(range(1, 50))
    taken = take(session.lane, verifier)
    foreign = replace(taken, fingerprint=FINGERPRINT, contents=taken.contents.of_types(NARROW))
    restore([opened(snapshot_file.encode(foreign))], target.lane, verifier, inexact=True)
    held = take(target.lane, verifier)
    assert held.contents.keys.dtype == taken.contents.keys.dtype == np.uint32
    assert same(held, replace(taken, contents=foreign.contents.of_types(taken.contents)))


def test_snapshots_of_several_fingerprints_follow_one_another_where_that_may_be(verifier: TorchVerifier) -> None:
    """A session was on a worker of another fingerprint and type, and has come back."""
    verifier.allocate(GEOMETRY, 2)
    session, target = open_session(verifier, GEOMETRY), open_session(verifier, GEOMETRY, 1)
    session.append(range(1, 20))
    early = take(session.lane, verifier)
    session.append(range(5))
    late = take(session.lane, verifier, early.length)
    rounded = early.contents.of_types(NARROW)
    chain = [replace(early, fingerprint=FINGERPRINT, contents=rounded), late]
    with pytest.raises(SnapshotRefused, match=FINGERPRINT):
        restore(chain, target.lane, verifier)
    restore(chain, target.lane, verifier, inexact=True)
    held = take(target.lane, verifier).contents
    for name in ("keys", "values"):
        parts = [getattr(rounded.of_types(late.contents), name), getattr(late.contents, name)]
        assert np.array_equal(getattr(held, name), np.concatenate(parts, 2))
    assert np.array_equal(held.final_hidden, late.contents.final_hidden)


class TestRefused:
    """A lane is as it was, and the message says why."""

    @pytest.fixture
    def taken(self, verifier: TorchVerifier) -> TakenSnapshot:
        verifier.allocate(GEOMETRY, 2)
        session = open_session(verifier, GEOMETRY)
        session.append(range(1, 50))
        return take(session.lane, verifier)

    def refusal(
        self,
        verifier: TorchVerifier,
        taken: TakenSnapshot,
        options: SessionOptions | None = None,
        *,
        inexact: bool = False,
    ) -> str:
        lane = Lane(GEOMETRY, 1, sink_window(options or SessionOptions(), GEOMETRY))
        with pytest.raises(SnapshotRefused) as refused:
            restore([taken], lane, verifier, inexact=inexact)
        assert (lane.length, lane.num_live_slots, lane.history_digest) == (0, 0, EMPTY_HISTORY)
        return str(refused.value)

    def test_of_another_fingerprint(self, verifier: TorchVerifier, taken: TakenSnapshot) -> None:
        foreign = replace(taken, fingerprint=FINGERPRINT)
        assert FINGERPRINT in self.refusal(verifier, foreign)
        lane = Lane(GEOMETRY, 1, sink_window(SessionOptions(), GEOMETRY))
        restore([foreign], lane, verifier, inexact=True)
        assert lane.length == 49

    @pytest.mark.parametrize("model_digest", [MODEL_DIGEST, ""])
    def test_of_another_model_also_where_another_fingerprint_will_do(
        self, verifier: TorchVerifier, taken: TakenSnapshot, model_digest: str
    ) -> None:
        foreign = replace(taken, fingerprint=FINGERPRINT, model_digest=model_digest)
        assert verifier.facts.model_digest in self.refusal(verifier, foreign, inexact=True)

    def test_where_nobody_knows_which_model_it_is(
        self, verifier: TorchVerifier, taken: TakenSnapshot, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(verifier, "facts", replace(verifier.facts, model_digest=""))
        foreign = replace(taken, fingerprint=FINGERPRINT, model_digest="")
        assert "digest" in self.refusal(verifier, foreign, inexact=True)

    def test_of_another_retention(self, verifier: TorchVerifier, taken: TakenSnapshot) -> None:
        assert "4 + 28 tokens, not 2 + 28" in self.refusal(verifier, taken, SessionOptions(sink=2, window=28))

    def test_of_fewer_layers(self, verifier: TorchVerifier, taken: TakenSnapshot) -> None:
        fewer = replace(taken.contents, keys=taken.contents.keys[1:], values=taken.contents.values[1:])
        assert "3 layers, not 4" in self.refusal(verifier, replace(taken, contents=fewer))
        assert "not of this model" in self.refusal(
            verifier, replace(taken, contents=replace(taken.contents, first_layer=1))
        )

    def test_of_another_shape(self, verifier: TorchVerifier, taken: TakenSnapshot) -> None:
        contents = replace(taken.contents, values=taken.contents.values[:, :, :, 1:])
        assert "not of this model" in self.refusal(verifier, replace(taken, contents=contents))
        wide = replace(taken.contents, final_hidden=taken.contents.final_hidden.astype(np.uint16))
        assert "not of this model" in self.refusal(verifier, replace(taken, contents=wide))

    def test_that_lacks_a_token(self, verifier: TorchVerifier, taken: TakenSnapshot) -> None:
        assert "all that is kept" in self.refusal(verifier, replace(taken, length=50))
        short = replace(taken, positions=taken.positions[1:], token_ids=taken.token_ids[1:])
        assert "all that is kept" in self.refusal(verifier, short)

    def test_with_a_gap(self, verifier: TorchVerifier) -> None:
        lane = Lane(GEOMETRY, 1, RETENTION)
        for first, message in ((snapshot(5), "from 7 on does not follow one up to 5"), (None, "one up to 0")):
            after = replace(snapshot(3, start=7), fingerprint=verifier.facts.fingerprint)
            before = [replace(first, fingerprint=verifier.facts.fingerprint)] if first else []
            with pytest.raises(SnapshotRefused, match=message):
                restore([*before, after], lane, verifier)
