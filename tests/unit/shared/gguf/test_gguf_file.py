"""GGUF files on disk: one, several of one model, and what is none."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.gguf_file import GgufFile, is_gguf
from kakeya_shared.gguf.tensor_types import TENSOR_TYPES, quantization_name
from tests.gguf_bytes import Tensor, gguf


def part(directory: Path, number: int, count: int, **metadata: object) -> Path:
    """A file of a split model, with one tensor that is called by its number."""
    said = {"split.no": number, "split.count": count} | metadata
    tensor = Tensor(f"tensor{number}", [2, 2], 0, struct.pack("<4f", *[float(number)] * 4))
    path = directory / f"model-{number + 1:05}-of-{count:05}.gguf"
    path.write_bytes(gguf({key: value for key, value in said.items() if value is not None}, [tensor]))
    return path


def test_a_file_is_read_by_its_tensors(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(
        gguf({"a": 1}, [Tensor("x", [2, 3], 0, struct.pack("<6f", *range(6))), Tensor("y", [4], 1, bytes(8))])
    )
    file = GgufFile(tmp_path / "a.gguf")
    assert file.metadata.integer("a") == 1
    assert file.files == [tmp_path / "a.gguf"]
    assert file.num_weights == 6
    assert bytes(file.bytes_of("x")) == struct.pack("<6f", *range(6))
    with pytest.raises(KeyError):
        file.bytes_of("z")


def test_a_split_model_is_read_by_any_of_its_files(tmp_path: Path) -> None:
    files = [part(tmp_path, number, 3, **({"said": 5} if number == 0 else {})) for number in range(3)]
    for path in files:
        file = GgufFile(path)
        assert file.files == files
        assert file.metadata.integer("said") == 5
        assert [struct.unpack_from("<f", file.bytes_of(f"tensor{number}"))[0] for number in range(3)] == [0, 1, 2]
        assert file.num_weights == 12


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda files: files[1].unlink(), "is one of 3 files of a model, and here is no model-00002-of-00003.gguf"),
        (lambda files: files[1].write_bytes(files[0].read_bytes()), "it is file 1 of 3 by what it says itself"),
        (
            lambda files: files[2].write_bytes(gguf()),
            "it is file 1 of 1 by what it says itself, and 3 of 3 by its name",
        ),
        (lambda files: files[1].write_bytes(b"other"), "00002-of-00003.gguf cannot be read: it is no GGUF file"),
        (
            lambda files: files[1].write_bytes(
                gguf({"split.no": 1, "split.count": 3}, [Tensor("tensor0", [1], 0, bytes(4))])
            ),
            "tensor tensor0 is in another file, too",
        ),
    ],
)
def test_files_that_do_not_belong_together_are_refused(
    tmp_path: Path, spoil: Callable[[list[Path]], object], reason: str
) -> None:
    files = [part(tmp_path, number, 3) for number in range(3)]
    spoil(files)
    with pytest.raises(GgufError, match=reason):
        GgufFile(files[0])


def test_a_number_of_files_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for name in ("model-00001-of-00000.gguf", "model-00001-of-99999.gguf"):
        (tmp_path / name).write_bytes(gguf())
        with pytest.raises(GgufError, match="no model has"):
            GgufFile(tmp_path / name)


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "directory.gguf").mkdir()
    for name, reason in (
        ("pipe.gguf", "it is no file"),
        ("directory.gguf", "it is no file"),
        ("empty.gguf", "it is empty"),
        ("none.gguf", "No such file or directory"),
    ):
        with pytest.raises(GgufError, match=f"{name} cannot be read: {reason}"):
            GgufFile(tmp_path / name)


def test_a_file_is_known_by_its_name_or_its_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "sha256-17").write_bytes(gguf())
    (tmp_path / "other").write_bytes(b"{}")
    assert is_gguf("anywhere/model.gguf")
    assert is_gguf(str(tmp_path / "sha256-17"))
    assert not is_gguf(str(tmp_path / "other"))
    assert not is_gguf(str(tmp_path))
    assert not is_gguf("Qwen/Qwen3-0.6B")


def test_types_are_known_by_their_names() -> None:
    assert (quantization_name(15), quantization_name(3), quantization_name(4), quantization_name(-1)) == (
        "Q4_K_M",
        "Q4_1",
        "",
        "",
    )
    assert len({kind.name for kind in TENSOR_TYPES.values()}) == len(TENSOR_TYPES)
