"""Files of a report, while others read them, while their writer is killed, while the disk fails."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kakeya_bench.report import files
from kakeya_bench.report.files import NotWritable

KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
from kakeya_bench.report import files

path, draw = Path(sys.argv[1]), random.Random(0)
for _ in range(15):
    child = os.fork()
    if child == 0:
        number = 0
        while True:
            number += 1
            files.write_json(path, {"number": number, "filler": [number] * 200_000})
    while not path.exists():
        time.sleep(0.001)
    for _ in range(draw.randrange(20)):  # whoever reads meanwhile finds a whole document
        document = json.loads(path.read_bytes())
        assert document["filler"] == [document["number"]] * 200_000
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
from kakeya_bench.report import files

path = Path(sys.argv[1])
files.write(path, b"old")
resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))
try:
    files.write(path, b"n" * 65_537)
except files.NotWritable as error:
    print(error)
files.write(path, path.read_bytes() + b" and new")
"""


def test_readers_and_kill_9_of_the_writer_find_a_whole_document(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "report.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("whole\n", "")


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{path}: File too large\n", "")
    assert path.read_bytes() == b"old and new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_document_is_one_line_of_json_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    files.write_json(path, {"a": [1, None], "b": "ü\n"})
    assert path.read_text() == '{"a":[1,null],"b":"\\u00fc\\n"}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(path, {"a": [float("nan")]})
    assert json.loads(path.read_text())["a"] == [1, None]
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_to(tmp_path: Path) -> None:
    file, directory = tmp_path / "file", tmp_path / "directory"
    file.write_text("mine")
    directory.mkdir()
    for write, place, reason in (
        (lambda place: files.write(place, b""), file / "report.json", "File exists"),
        (lambda place: files.write(place, b""), directory, "Is a directory"),
        (files.prepare, file, "File exists"),
        (files.prepare, file / "below", "Not a directory"),
    ):
        with pytest.raises(NotWritable, match=f"^{place}: {reason}$"):
            write(place)
    assert file.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == [directory, file]


def test_a_directory_is_made_or_taken_as_it_is(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    files.prepare(directory)
    assert list(directory.iterdir()) == []
    files.write(directory / "report.json", b"content")
    files.prepare(directory)
    assert [file.name for file in directory.iterdir()] == ["report.json"]


def test_what_was_measured_is_kept_where_drawing_breaks(tmp_path: Path) -> None:
    def breaks(_: object) -> dict[str, bytes]:
        raise ArithmeticError

    path = tmp_path / "a.json"
    with pytest.raises(ArithmeticError):
        files.write_all(path, {"measured": 1}, breaks)
    assert json.loads(path.read_text()) == {"measured": 1}
    files.write_all(path, {"measured": 2}, lambda document: {"a.png": bytes([document["measured"]])})
    assert (tmp_path / "a.png").read_bytes() == b"\2"
