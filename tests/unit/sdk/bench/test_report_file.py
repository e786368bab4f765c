"""Files of a report, while others read them, while their writer is killed, while the disk fails."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kakeya.bench import report_file
from kakeya.bench.report_file import NotWritable

READER = """
import json, sys
from pathlib import Path

path, seen = Path(sys.argv[1]), set()
print("reading", flush=True)
while True:
    document = json.loads(path.read_bytes())
    assert document["filler"] == [document["number"]] * len(document["filler"]), "two documents in one"
    seen.add(document["number"])
    if document["is_last"]:
        break
print(len(seen))
"""

KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
from kakeya.bench import report_file

path, draw = Path(sys.argv[1]), random.Random(0)
for _ in range(15):
    child = os.fork()
    if child == 0:
        number = 0
        while True:
            number += 1
            report_file.write_json(path, {"number": number, "filler": [number] * 200_000})
    while not path.exists():
        time.sleep(0.001)
    time.sleep(draw.uniform(0, 0.04))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    document = json.loads(path.read_bytes())
    assert document["filler"] == [document["number"]] * 200_000
    path.unlink()
print("whole")
"""

FULL_DISK = """
import resource, sys
from pathlib import Path
from kakeya.bench import report_file

path = Path(sys.argv[1])
report_file.write(path, b"old")
resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))
try:
    report_file.write(path, b"n" * 65_537)
except report_file.NotWritable as error:
    print(error)
report_file.write(path, path.read_bytes() + b" and new")
"""


def _document(number: int, *, is_last: bool = False) -> dict[str, object]:
    return {"number": number, "filler": [number] * 20_000, "is_last": is_last}


def test_whoever_reads_meanwhile_finds_a_whole_document(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    report_file.write_json(path, _document(0))
    command = [sys.executable, "-c", READER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        for number in range(1, 200):
            report_file.write_json(path, _document(number))
        report_file.write_json(path, _document(200, is_last=True))
        output, errors = reader.communicate(timeout=20)
    assert (errors, reader.returncode) == ("", 0)
    assert int(output) > 5, "it has seen the file change"
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]


def test_kill_9_of_the_writer_leaves_a_whole_document(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "report.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("whole\n", "")


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{path}: File too large\n", "")
    assert path.read_bytes() == b"old and new"
    assert list(tmp_path.iterdir()) == [path]


def test_it_is_on_disk_before_it_is_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut may leave the new name and none of the content."""
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def logged_fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        done.append("directory on disk" if stat.S_ISDIR(status.st_mode) else f"{status.st_size} bytes on disk")
        fsync(descriptor)

    def logged_replace(source: Path, target: Path) -> None:
        done.append(f"renamed to {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", logged_fsync)
    monkeypatch.setattr(os, "replace", logged_replace)
    report_file.write(tmp_path / "picture.png", b"12345")
    assert done == ["5 bytes on disk", "renamed to picture.png", "directory on disk"]


def test_what_is_there_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    report_file.write(path, b"a longer old page")
    report_file.write(path, b"a page")
    assert path.read_bytes() == b"a page"


def test_a_document_is_one_line_of_json(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    report_file.write_json(path, {"a": [1, None], "b": "ü\n"})
    assert path.read_text() == '{"a":[1,null],"b":"\\u00fc\\n"}\n'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_json_has_no_word_for_is_a_mistake(tmp_path: Path, value: float) -> None:
    path = tmp_path / "report.json"
    report_file.write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        report_file.write_json(path, {"a": [value]})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_that_is_not_there_any_more(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "report.json"
    with pytest.raises(NotWritable) as raised:
        report_file.write(path, b"")
    assert str(raised.value) == f"{path}: No such file or directory"
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(NotWritable) as raised:
        report_file.write(file / "report.json", b"")
    assert str(raised.value) == f"{file / 'report.json'}: Not a directory"
    for directory in (file, file / "below"):
        with pytest.raises(NotWritable, match=f"^{directory}: (File exists|Not a directory)$"):
            report_file.prepare(directory)
    assert file.read_text() == "mine"


def test_a_file_that_is_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.mkdir()
    with pytest.raises(NotWritable) as raised:
        report_file.write(path, b"content")
    assert str(raised.value) == f"{path}: Is a directory"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_is_made_with_those_above_it_or_taken_as_it_is(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    for _ in range(2):
        report_file.prepare(directory)
        assert directory.is_dir()
    report_file.write(directory / "report.json", b"content")
    report_file.prepare(directory)
    assert [file.name for file in directory.iterdir()] == ["report.json"]


def test_what_was_measured_is_kept_where_drawing_breaks(tmp_path: Path) -> None:
    def breaks(_: object) -> dict[str, bytes]:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        report_file.write_all(tmp_path / "a.json", {"measured": 1}, breaks)
    assert json.loads((tmp_path / "a.json").read_text()) == {"measured": 1}
    report_file.write_all(
        tmp_path / "a.json", {"measured": 2}, lambda document: {"a.png": b"%d" % document["measured"]}
    )
    assert (tmp_path / "a.png").read_bytes() == b"2"
