"""`kakeya models pull`: resumed, checked, offline, refused; against a hub on this host."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya_worker import models_command
from kakeya_worker.hub import pull
from kakeya_worker.hub.blob import Blob, fetch
from kakeya_worker.models import checkpoint
from tests.unit.worker.hub.hub_server import Hub, digest, serving

PATIENT_SECONDS = 60
MODEL = "org/tiny"
_HEADER = json.dumps({"w": {"dtype": "U8", "shape": [300_000], "data_offsets": [0, 300_000]}}).encode()
WEIGHTS = len(_HEADER).to_bytes(8, "little") + _HEADER + bytes(range(250)) * 1200
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}" * 2000,
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"not wanted",
    "README.md": b"not wanted",
}
# The hub's client hands on 10 MB at a time.
_IN_SMALL_CHUNKS = """
import sys
from huggingface_hub import constants
from kakeya_worker.models_command import main
constants.DOWNLOAD_CHUNK_SIZE = 1000
sys.exit(main(sys.argv[1:]))
"""
WANTED = {"config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Where the hub's client of this process asks, with a cache of its own."""
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    with serving(Hub({(MODEL, "main"): dict(FILES), (MODEL, "v1"): {**FILES, "config.json": b"{}"}})) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)  # between the client's tries
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
        close_session()
        yield hub
        close_session()


def there(directory: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(directory).iterdir()}


def test_a_model_is_brought_here_whole_and_found_by_who_loads_it(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert models_command.main(["pull", MODEL]) == 0
    told = capsys.readouterr()
    directory = told.out.strip()
    assert there(directory) == {name: FILES[name] for name in WANTED}
    num_bytes = sum(len(FILES[name]) for name in WANTED)
    assert f"{MODEL} is here, {num_bytes:,} bytes, of which {num_bytes:,} came now" in told.err
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert checkpoint.locate(MODEL) == Path(directory)
    hub.asked.clear()
    assert models_command.main(["pull", MODEL, "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == {
        "model": MODEL,
        "directory": directory,
        "num_bytes": num_bytes,
        "num_downloaded_bytes": 0,
    }
    assert "the hub is not asked" in told.err
    assert hub.asked == []


def test_a_revision(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert models_command.main(["pull", MODEL, "--revision", "v1"]) == 0
    assert there(capsys.readouterr().out.strip())["config.json"] == b"{}"
    assert models_command.main(["pull", MODEL, "--revision", hub.commit(MODEL, "main")]) == 0
    assert there(capsys.readouterr().out.strip())["config.json"] == FILES["config.json"]
    assert models_command.main(["pull", MODEL, "--revision", "v2"]) == 1
    assert f"{MODEL} has no revision 'v2'" in capsys.readouterr().err


def test_flags_have_variables_and_a_model_is_asked_for(
    hub: Hub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAKEYA_MODELS_REVISION", "v1")
    assert models_command.main(["pull", MODEL]) == 0
    assert there(capsys.readouterr().out.strip())["config.json"] == b"{}"
    with pytest.raises(SystemExit) as ended:
        models_command.main(["pull"])
    assert ended.value.code == 2
    assert "say which MODEL" in capsys.readouterr().err
    monkeypatch.setenv("KAKEYA_MODELS_MODEL", MODEL)
    assert models_command.main(["pull"]) == 0


def test_a_connection_that_breaks_is_gone_on_with(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.broken_after["model.safetensors"] = [100_000, 50_000]
    assert models_command.main(["pull", MODEL]) == 0
    assert there(capsys.readouterr().out.strip())["model.safetensors"] == WEIGHTS
    ranges = [asked for method, name, asked in hub.asked if (method, name) == ("GET", "model.safetensors")]
    assert ranges == ["", "bytes=100000-", "bytes=150000-"]


def test_a_pull_that_was_killed_is_gone_on_with(tmp_path: Path) -> None:
    """As real processes, told by HF_ENDPOINT and HF_HOME."""
    hub = Hub({(MODEL, "main"): dict(FILES)}, pauses_after={"model.safetensors": 200_000})
    environment = os.environ | {"HF_HOME": str(tmp_path), "no_proxy": "127.0.0.1", "HF_HUB_DOWNLOAD_TIMEOUT": "60"}
    command = [sys.executable, "-c", _IN_SMALL_CHUNKS, "pull", MODEL]
    with serving(hub):
        environment["HF_ENDPOINT"] = hub.url
        blobs = tmp_path / "hub/models--org--tiny/blobs"
        part = blobs / f"{digest(WEIGHTS)}.part"
        killed = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            ends_at = time.monotonic() + PATIENT_SECONDS
            while not part.exists() or part.stat().st_size < 100_000:
                assert time.monotonic() < ends_at
                time.sleep(0.01)
            busy = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENT_SECONDS)
            assert busy.returncode == 1
            assert "another process downloads model.safetensors" in busy.stderr
            killed.send_signal(signal.SIGINT)
            assert "what has come is kept" in killed.communicate(timeout=PATIENT_SECONDS)[1]
            assert killed.returncode == 130
        finally:
            killed.kill()
            killed.communicate()
        num_there = part.stat().st_size
        assert 100_000 <= num_there <= 200_000
        del hub.pauses_after["model.safetensors"]
        hub.asked.clear()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENT_SECONDS)
    assert done.returncode == 0, done.stderr
    assert there(done.stdout.strip())["model.safetensors"] == WEIGHTS
    assert ("GET", "model.safetensors", f"bytes={num_there}-") in hub.asked
    assert f"model.safetensors: went on after {num_there:,} bytes" in done.stderr
    assert not part.exists()


def test_a_part_that_is_here_is_gone_on_with_by_one_process(
    hub: Hub, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = tmp_path / "hub/models--org--tiny/blobs"
    blobs.mkdir(parents=True)
    part = blobs / f"{digest(WEIGHTS)}.part"
    part.write_bytes(WEIGHTS[:1000])
    with part.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert models_command.main(["pull", MODEL]) == 1
    assert "another process downloads model.safetensors" in capsys.readouterr().err
    assert models_command.main(["pull", MODEL]) == 0
    assert "model.safetensors: went on after 1,000 bytes" in capsys.readouterr().err

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pull, "pull", stopped)
    assert models_command.main(["pull", MODEL]) == 130


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_that_comes_damaged_is_refused(hub: Hub, capsys: pytest.CaptureFixture[str], name: str) -> None:
    hub.damaged.add(name)
    assert models_command.main(["pull", MODEL]) == 1
    told = capsys.readouterr()
    assert f"{name} came damaged" in told.err
    assert told.out == ""
    hub.damaged.clear()
    assert models_command.main(["pull", MODEL]) == 0
    assert there(capsys.readouterr().out.strip())[name] == FILES[name]


def test_a_part_that_is_of_something_else_is_refused_too(
    hub: Hub, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    blobs = tmp_path / "hub/models--org--tiny/blobs"
    blobs.mkdir(parents=True)
    part = blobs / f"{digest(WEIGHTS)}.part"
    part.write_bytes(b"x" * 1000)
    assert models_command.main(["pull", MODEL]) == 1
    assert "model.safetensors came damaged" in capsys.readouterr().err
    assert not part.exists()
    part.write_bytes(WEIGHTS + b"x")
    assert models_command.main(["pull", MODEL]) == 0
    part.write_bytes(WEIGHTS)


def test_a_file_that_was_damaged_here_is_found_and_pulled_again(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert models_command.main(["pull", MODEL]) == 0
    directory = Path(capsys.readouterr().out.strip())
    (directory / "model.safetensors").resolve().write_bytes(b"x" + WEIGHTS[1:])
    assert models_command.main(["pull", MODEL]) == 1
    assert f"model.safetensors is damaged: its digest is {digest(b'x' + WEIGHTS[1:])}" in capsys.readouterr().err
    assert models_command.main(["pull", MODEL]) == 0
    assert there(str(directory))["model.safetensors"] == WEIGHTS


def test_copies_on_a_file_system_without_links_are_left_alone(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert models_command.main(["pull", MODEL]) == 0
    link = Path(capsys.readouterr().out.strip()) / "config.json"
    link.unlink()
    link.write_text("a copy")
    assert models_command.main(["pull", MODEL]) == 0


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (401, "RepoNotFound", "the hub has no model 'org/tiny', or it is private: set HF_TOKEN"),
        (403, "GatedRepo", "org/tiny is gated: ask for access at its page on the hub"),
        (403, "", "the hub does not hand out org/tiny"),
        (500, "", "the hub does not hand out org/tiny"),
    ],
)
def test_what_the_hub_refuses(hub: Hub, capsys: pytest.CaptureFixture[str], status: int, code: str, said: str) -> None:
    hub.refuses[MODEL] = status, code
    assert models_command.main(["pull", MODEL]) == 1
    assert said in capsys.readouterr().err


def test_a_token_that_does_not_do(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert models_command.main(["pull", "org/none"]) == 1
    told = capsys.readouterr().err
    assert "the hub has no model 'org/none', or it is private: the token that is set does not do" in told
    assert "hf_wrong" not in told


def test_names_that_are_none_and_models_that_are_here(
    hub: Hub, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for model, said in {
        "no/such/name": "is no model of the hub: those are named ORGANIZATION/NAME",
        str(tmp_path): "is a directory of this host",
        "kakeya-nano": "kakeya-nano is installed on this host",
    }.items():
        assert models_command.main(["pull", model]) == 1
        assert said in capsys.readouterr().err


def test_a_hub_that_does_not_answer(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.ports import free_port

    nowhere = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", nowhere)
    assert models_command.main(["pull", MODEL]) == 1
    assert f"the hub at {nowhere} does not answer" in capsys.readouterr().err


def test_offline_and_not_here(hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert models_command.main(["pull", MODEL]) == 1
    assert f"{MODEL} is not here as a whole" in capsys.readouterr().err
    assert hub.asked == []


def test_a_disk_that_is_too_small(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**12, 10**12, 10**9))
    assert models_command.main(["pull", MODEL]) == 1
    assert "more bytes, and 1,000,000,000 are free" in capsys.readouterr().err
    assert not any(method == "GET" for method, _, _ in hub.asked)


def test_a_cache_that_cannot_be_written(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "file/hub"))
    assert models_command.main(["pull", MODEL]) == 1
    assert f"{MODEL} cannot be pulled" in capsys.readouterr().err


def test_what_is_too_large_for_plain_http_is_left_to_the_hubs_client(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched = []

    def noted(blob: Blob, directory: Path, url: str, headers: dict[str, str]) -> int:
        fetched.append(blob.path)
        return fetch(blob, directory, url, headers)

    monkeypatch.setattr(pull, "fetch", noted)
    monkeypatch.setattr(pull, "_LARGEST_BYTES", 100_000)
    assert models_command.main(["pull", MODEL]) == 0
    assert sorted(fetched) == ["chat_template.jinja", "config.json", "tokenizer.json"]
    assert there(capsys.readouterr().out.strip())["model.safetensors"] == WEIGHTS


def test_without_the_hubs_client(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in sys.modules if name.startswith("kakeya_worker.hub.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", None)
    assert models_command.main(["pull", MODEL]) == 1
    assert "pip install 'kakeya-worker[torch]'" in capsys.readouterr().err


def test_models_that_are_here_are_listed(
    hub: Hub, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert models_command.main(["list"]) == 0
    assert MODEL not in (told := capsys.readouterr().out)
    assert "kakeya-nano  installed" in told
    assert models_command.main(["pull", MODEL]) == 0
    directory = capsys.readouterr().out.strip()
    (tmp_path / "hub/datasets--org--data/snapshots").mkdir(parents=True)
    assert models_command.main(["list"]) == 0
    row = next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(MODEL))
    size = f"{sum(len(FILES[name]) for name in WANTED):,}"
    assert row[:5] == [MODEL, "main", "llama", "-", size]
    assert row[-2:] == ["whole", directory]
    (Path(directory) / "model.safetensors").unlink()
    assert models_command.main(["list", "--json"]) == 0
    listed = {each["model"]: each for each in json.loads(capsys.readouterr().out)["models"]}
    assert listed["kakeya-nano"]["problem"] is None
    assert "model.safetensors cannot be read" in listed[MODEL]["problem"]
    from kakeya_shared import installed_models, plugins

    def broken(name: str) -> Path:
        raise plugins.PluginError(f"{name} is broken")

    monkeypatch.setattr(installed_models, "directory", broken)
    assert models_command.main(["list"]) == 0
    assert "kakeya-nano is broken" in capsys.readouterr().out
    monkeypatch.setattr(installed_models, "names", lambda: broken("all"))
    assert models_command.main(["list"]) == 1
    assert "cannot be listed: all is broken" in capsys.readouterr().err
