"""The file of packed weights: its form, its integrity, and what happens where it cannot be written."""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from structlog.testing import capture_logs

from kakeya_worker.torch_backend.exact import packed_file, weight_cache
from kakeya_worker.torch_backend.exact.matrices import Packed
from kakeya_worker.torch_backend.exact.packing import PackedMatrix, pack
from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix
from kakeya_worker.torch_backend.exact.weight_cache import Conversion, WeightCache
from kakeya_worker.torch_backend.file_lock import FileLock

SHAPES = {"a": (130, 70), "b": (64, 128), "c": (1, 5), "d": (300, 64)}
FILE = f"model.{packed_file.FORMAT}.safetensors"
linux_only = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="mappings are read from Linux's /proc")


def _matrix(name: str) -> QuantizedMatrix:
    out_features, in_features = SHAPES[name]
    generator = torch.Generator().manual_seed(ord(name))
    return QuantizedMatrix(
        torch.randint(-127, 128, SHAPES[name], generator=generator, dtype=torch.int8),
        torch.rand(out_features, -(-in_features // 64), generator=generator).to(torch.bfloat16),
        torch.randint(-30, 31, (in_features,), generator=generator, dtype=torch.int8),
    )


class Loaded(NamedTuple):
    """What a start made: the matrices, which of them were converted, and the warnings."""

    matrices: dict[str, Packed]
    converted: list[str]
    warnings: list[str]


def _load(directory: Path, names: str = "abcd") -> Loaded:
    converted = []

    def quantize(name: str) -> QuantizedMatrix:
        converted.append(name)
        return _matrix(name)

    with capture_logs() as logs:
        cache = WeightCache(directory / "model", num_weights=50_000)
        conversions = [Conversion(name, SHAPES[name], partial(quantize, name)) for name in names]
        cache.fill(conversions)
        matrices = {conversion.name: cache.matrix(conversion) for conversion in conversions}
        cache.finish()
    for name, matrix in matrices.items():
        _assert_equal(matrix, pack(_matrix(name)))
    return Loaded(matrices, converted, [line["error"] for line in logs if line["log_level"] == "warning"])


def _assert_equal(one: Packed, other: Packed) -> None:
    assert one.out_features == other.out_features
    for field in ("values", "scales", "exponents"):
        assert torch.equal(getattr(one, field), getattr(other, field)), field


def test_what_one_start_converts_the_next_ones_find(tmp_path: Path) -> None:
    assert _load(tmp_path).converted == [*SHAPES]
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o644
    before = (tmp_path / FILE).stat().st_ino
    again = _load(tmp_path)
    assert (again.converted, again.warnings) == ([], [])
    assert (tmp_path / FILE).stat().st_ino == before, "nothing new, nothing written"


def test_the_file_is_safetensors_and_aligned(tmp_path: Path) -> None:
    _load(tmp_path)
    tensors = load_file(tmp_path / FILE)
    content = (tmp_path / FILE).read_bytes()
    num_header_bytes = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8 : 8 + num_header_bytes])
    with safe_open(tmp_path / FILE, framework="pt") as file:
        assert file.metadata() == header.pop("__metadata__")
    assert (
        header.keys() == tensors.keys() == {f"{name}/{f}" for name in SHAPES for f in ("values", "scales", "exponents")}
    )
    for entry in header.values():
        assert (8 + num_header_bytes + entry["data_offsets"][0]) % 64 == 0
    for name in SHAPES:
        packed = pack(_matrix(name))
        assert torch.equal(tensors[f"{name}/values"], packed.values)
        assert torch.equal(tensors[f"{name}/scales"], packed.scales)
        assert torch.equal(tensors[f"{name}/exponents"][: packed.in_features], packed.exponents)


@linux_only
@pytest.mark.parametrize("is_cached", [False, True])
def test_matrices_are_views_into_the_file(tmp_path: Path, is_cached: bool) -> None:
    """Pages of the file itself, which all who map it share and nobody writes to."""
    if is_cached:
        _load(tmp_path)
    loaded = _load(tmp_path)
    ((start, end),) = _mappings(tmp_path / FILE)
    for matrix in loaded.matrices.values():
        assert isinstance(matrix, PackedMatrix)
        for tensor in (matrix.values, matrix.scales, matrix.exponents):
            assert tensor.data_ptr() % 64 == 0
            assert start <= tensor.data_ptr() < end


@linux_only
def test_huge_pages_are_asked_for(tmp_path: Path) -> None:
    loaded = _load(tmp_path)
    ((start, _),) = _mappings(tmp_path / FILE)
    (flags,) = re.findall(rf"^{start:x}-.*?^VmFlags: ([^\n]*)", Path("/proc/self/smaps").read_text(), re.M | re.S)
    assert "hg" in flags.split() or not Path("/sys/kernel/mm/transparent_hugepage").exists()
    assert loaded.matrices


@linux_only
def test_what_was_written_in_small_pages_leaves_memory(tmp_path: Path) -> None:
    """Or the file would be mapped in them for as long as it stays there."""
    file = tmp_path / "file"
    file.write_bytes(bytes(8 << 20))
    os.sync()
    assert _pages_in_memory(file) > (4 << 20) // mmap.PAGESIZE  # the system may have taken some back already
    packed_file.drop_pages(file)
    assert _pages_in_memory(file) == 0 or _file_system(tmp_path) == "tmpfs"


def test_a_system_that_drops_no_pages_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fadvise")
    assert _load(tmp_path).warnings == []


def _pages_in_memory(file: Path) -> int:
    with file.open("r+b") as opened:
        mapping = mmap.mmap(opened.fileno(), 0)
    states = (ctypes.c_ubyte * -(-len(mapping) // mmap.PAGESIZE))()
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapping)), states) == 0
    return sum(state & 1 for state in states)


def _file_system(directory: Path) -> str:
    command = ["stat", "--file-system", "--format", "%T", str(directory)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _mappings(file: Path) -> list[tuple[int, int]]:
    """Where this process has mapped a file, read-only and shared."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    inode = str(file.stat().st_ino)
    found = [(line[0].split("-"), line[1]) for line in lines if line[4] == inode]
    assert {permissions for _, permissions in found} == {"r--s"}
    return [(int(start, 16), int(end, 16)) for (start, end), _ in found]


@pytest.mark.parametrize("place", ["values", "scales", "exponents", "header"])
def test_one_wrong_bit_is_found(tmp_path: Path, place: str) -> None:
    _load(tmp_path)
    whole = (tmp_path / FILE).read_bytes()
    packed = pack(_matrix("d"))  # the last one
    from_end = {"exponents": 1, "scales": 65, "values": 65 + packed.scales.numel() * 2}
    at = whole.index(b"in_features") + len("in_features") + 5 if place == "header" else len(whole) - from_end[place]
    (tmp_path / FILE).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    again = _load(tmp_path)
    assert (again.converted, len(again.warnings)) == ([*SHAPES], 1)
    assert (tmp_path / FILE).read_bytes() == whole


def test_a_damaged_length_reads_no_more_than_a_header(tmp_path: Path) -> None:
    _load(tmp_path)
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:4] + b"\1" + whole[5:])
    assert _load(tmp_path).warnings == [
        f"not a file of packed matrices: its header has {(1 << 32) + packed_file._HEADER_BYTES - 8} bytes"
    ]


@pytest.mark.parametrize("missing", [["MADV_HUGEPAGE"], ["MADV_HUGEPAGE", "MADV_WILLNEED"]])
def test_a_system_without_advice_on_memory_maps_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: list[str]
) -> None:
    _load(tmp_path)
    for name in missing:
        monkeypatch.delattr(mmap, name, raising=False)
    assert _load(tmp_path).converted == []


def test_a_kernel_without_huge_pages_maps_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _load(tmp_path)
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 12345, raising=False)  # which no kernel knows
    assert _load(tmp_path).converted == []


@pytest.mark.parametrize("cut", [0, 7, 8, 100, packed_file._HEADER_BYTES, packed_file._HEADER_BYTES + 9_000, -1])
def test_a_truncated_file_is_written_anew(tmp_path: Path, cut: int) -> None:
    _load(tmp_path)
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:cut])
    again = _load(tmp_path)
    assert (again.converted, len(again.warnings)) == ([*SHAPES], 1)
    assert (tmp_path / FILE).read_bytes() == whole


def test_other_safetensors_are_written_anew(tmp_path: Path) -> None:
    _load(tmp_path)
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole.replace(packed_file.FORMAT.encode(), b"kakeya-packed-0"))
    again = _load(tmp_path)
    assert (again.converted, again.warnings) == (
        [*SHAPES],
        ["not a file of packed matrices: its format is 'kakeya-packed-0'"],
    )
    assert (tmp_path / FILE).read_bytes() == whole


def test_a_matrix_of_another_shape_is_converted(tmp_path: Path) -> None:
    _load(tmp_path)
    cache = WeightCache(tmp_path / "model", num_weights=0)
    cache.fill([])
    _assert_equal(cache.matrix(Conversion("a", SHAPES["d"], lambda: _matrix("d"))), pack(_matrix("d")))
    _assert_equal(cache.matrix(Conversion("e", SHAPES["b"], lambda: _matrix("b"))), pack(_matrix("b")))
    cache.finish()
    assert _load(tmp_path).converted == []


def test_files_of_older_formats_are_removed(tmp_path: Path) -> None:
    for name in ("model.safetensors", "model.kakeya-packed-0.safetensors", "model2.safetensors"):
        (tmp_path / name).write_text("")
    _load(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {FILE, "model2.safetensors"}


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> QuantizedMatrix:
        assert len([*tmp_path.iterdir()]) == 2, "the lock and what was written"
        raise LookupError("the checkpoint lacks it")

    conversions = [Conversion("a", SHAPES["a"], lambda: _matrix("a")), Conversion("b", SHAPES["b"], failing)]
    with pytest.raises(LookupError):
        WeightCache(tmp_path / "model", num_weights=0).fill(conversions)
    assert [*tmp_path.iterdir()] == []


@contextmanager
def _largest_file(num_bytes: int) -> Iterator[None]:
    """As a full disk, of which no test can do without a mount of its own: writes beyond fail, in the middle of one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("num_bytes", [0, packed_file._HEADER_BYTES, packed_file._HEADER_BYTES + 15_000])
def test_a_disk_that_becomes_full(tmp_path: Path, num_bytes: int) -> None:
    with _largest_file(num_bytes):
        loaded = _load(tmp_path)
    assert loaded.converted[-len(SHAPES) :] == [*SHAPES], "into this process's memory"
    assert loaded.warnings == [str(OSError(errno.EFBIG, os.strerror(errno.EFBIG)))]
    assert [*tmp_path.iterdir()] == []
    assert _load(tmp_path).warnings == []


def _failing_sync(descriptor: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_pages_that_may_be_lost_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", _failing_sync)
    assert _load(tmp_path).warnings == [str(OSError(errno.EIO, os.strerror(errno.EIO)))]
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_cannot_get_its_name_is_used_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE).mkdir()
    assert len(_load(tmp_path).warnings) == 2, "it is no file, and cannot be replaced"


def test_a_header_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(packed_file, "_HEADER_BYTES", 1024)
        assert _load(tmp_path).warnings == ["the header of 4 matrices takes more than 1016 bytes"]
    assert [*tmp_path.iterdir()] == []


def test_a_disk_without_room_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=51_561))
    (warning,) = _load(tmp_path).warnings
    assert "No space left on device for 51562 bytes" in warning
    assert [*tmp_path.iterdir()] == []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=51_562))
    assert _load(tmp_path).warnings == []


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_cache, "_REPORT_SECONDS", 0.0)
    cache = WeightCache(None, num_weights=20_000)
    with capture_logs() as logs:
        for name in "ab":
            cache.matrix(Conversion(name, SHAPES[name], partial(_matrix, name)))
    assert [(line["matrices"], line["weights"], line["of_weights"]) for line in logs] == [
        (1, 9_100, 20_000),
        (2, 17_292, 20_000),
    ]


CONVERTING = """
import sys
from functools import partial
from pathlib import Path
from tests.unit.worker.torch_backend.exact.test_weight_cache import FILE, SHAPES, Conversion, WeightCache, _matrix
cache = WeightCache(Path(sys.argv[1]) / "model", 0)
def quantize(name):
    print("converts", name, flush=True)
    sys.stdin.readline()
    return _matrix(name)
cache.fill(Conversion(name, SHAPES[name], partial(quantize, name)) for name in SHAPES)
print("loaded", flush=True)
"""


class _Worker:
    """A process that loads; it converts a matrix for each line that it is sent."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-c", CONVERTING, str(directory)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def says(self) -> str:
        """Its next line of output, but for those that tell of long work how far it is."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        return self.says() if "converting weights" in line else line

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[Callable[[], _Worker]]:
    started: list[_Worker] = []

    def start() -> _Worker:
        started.append(_Worker(tmp_path))
        return started[-1]

    yield start
    for worker in started:
        worker.process.kill()
        worker.process.communicate()


def test_one_worker_converts_and_the_others_wait(tmp_path: Path, start_worker: Callable[[], _Worker]) -> None:
    first = start_worker()
    assert first.says() == "converts a"
    second = start_worker()
    assert "waiting" in second.says()
    for name in "bcd":
        first.go_on()
        assert first.says() == f"converts {name}"
    first.go_on()
    assert "converted weights kept" in first.says()
    assert [first.says(), second.says()] == ["loaded", "loaded"]
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_worker_that_is_killed_leaves_its_work_to_the_next(
    tmp_path: Path, start_worker: Callable[[], _Worker]
) -> None:
    first = start_worker()
    assert first.says() == "converts a"
    first.go_on()
    assert first.says() == "converts b"
    second = start_worker()
    assert "waiting" in second.says()
    first.process.kill()
    assert second.says() == "converts a"
    for _ in SHAPES:
        second.go_on()
    assert second.process.wait(60) == 0
    assert _load(tmp_path).converted == []
    (left,) = {path.name for path in tmp_path.iterdir()} - {FILE}
    assert left.endswith(".part"), "swept after an hour"


def test_where_no_lock_can_be_made_nobody_waits(tmp_path: Path) -> None:
    FileLock(tmp_path / "missing" / "lock")
    (tmp_path / "model.lock").mkdir()
    assert _load(tmp_path).warnings == []
    assert _load(tmp_path).converted == []


def test_what_came_before_the_lock_was_taken_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker has put the file there, and let go, between a look and the lock."""

    def late(path: Path) -> FileLock:
        monkeypatch.setattr(weight_cache, "FileLock", FileLock)
        assert _load(tmp_path).converted == [*SHAPES]
        return FileLock(path)

    monkeypatch.setattr(weight_cache, "FileLock", late)
    assert _load(tmp_path).converted == []


def test_a_lock_on_a_file_that_is_gone_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder removed it while this process waited; a third may hold its successor."""
    path, flock = tmp_path / "lock", fcntl.flock
    inodes: list[int] = []

    def waiting(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        inodes.append(os.fstat(descriptor).st_ino)
        if len(inodes) == 1:
            path.rename(tmp_path / "removed")

    monkeypatch.setattr(fcntl, "flock", waiting)
    lock = FileLock(path)
    assert path.stat().st_ino == inodes[-1] != inodes[0]
    del lock
    assert not path.exists()


def test_two_without_locks_do_not_disturb_one_another(tmp_path: Path, start_worker: Callable[[], _Worker]) -> None:
    first = start_worker()
    assert first.says() == "converts a"
    (tmp_path / "model.lock").unlink()  # so that the next one locks another file
    second = start_worker()
    for worker in (first, second) * 4:
        worker.go_on()
    assert [worker.process.wait(60) for worker in (first, second)] == [0, 0]
    assert _load(tmp_path).converted == []
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
