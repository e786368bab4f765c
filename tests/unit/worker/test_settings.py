"""What a worker refuses before it loads anything: open doors, TLS files and tokens that cannot be used."""

import asyncio
from pathlib import Path

import pytest
import structlog

from kakeya_shared.process.service_process import StartError
from kakeya_shared.settings.typed_flags import as_variables
from kakeya_worker.program import serve
from kakeya_worker.settings import WorkerSettings
from tests.certificates import Authority


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--bind", "0.0.0.0:0"], "routers need no certificate (--tls-client-ca); --insecure does it nevertheless"),
        (["--token", "t", "--token-file", "f"], "give --token or --token-file, not both"),
        (["--max-message-bytes", "65536"], "--max-message-bytes must be at least 5004096"),
        (["--advertise", "host:0"], "--advertise needs the port"),
        (["--speculation", "draft-model"], "--speculation draft-model needs --draft-model"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        WorkerSettings.parse(["--model", "x", *flags])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "name", "pool"),
    [
        ("/models/Qwen3-0.6B", "Qwen3-0.6B", "qwen3-0-6b"),
        ("/models/SmolLM2.Q4_1.gguf", "SmolLM2.Q4_1", "smollm2-q4-1"),
        ("big-00001-of-00003.gguf", "big", "big"),
        ("ollama:smollm2:135m", "smollm2:135m", "smollm2-135m"),
    ],
)
def test_a_model_is_called_what_its_files_are(model: str, name: str, pool: str) -> None:
    settings = WorkerSettings.parse(["--model", model])
    assert (settings.model_name, settings.pool_name) == (name, pool)


def test_a_file_is_installed_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").touch()
    monkeypatch.chdir(tmp_path)
    assert as_variables(WorkerSettings, ["--model", "model.gguf"]) == {
        "KAKEYA_WORKER_MODEL": str(tmp_path / "model.gguf")
    }
    assert as_variables(WorkerSettings, ["--model", "ollama:tiny", "--draft-model", "model.gguf"]) == {
        "KAKEYA_WORKER_MODEL": "ollama:tiny",
        "KAKEYA_WORKER_DRAFT_MODEL": str(tmp_path / "model.gguf"),
    }


def test_a_token_is_not_shown() -> None:
    assert "very-secret" not in repr(WorkerSettings.parse(["--model", "x", "--token", "very-secret"]))


async def _refused(*flags: str) -> str:
    settings = WorkerSettings.parse(["--model", "/no/such/model", *flags])
    with pytest.raises(StartError) as caught:
        await asyncio.wait_for(serve(settings, asyncio.Event()), 60)
    return str(caught.value)


async def test_files_that_cannot_be_used_end_the_start_before_the_model_is_loaded(tmp_path: Path) -> None:
    assert "ca.pem: No such file" in await _refused("--router-ca", str(tmp_path / "ca.pem"))
    assert "token: No such file" in await _refused("--token-file", str(tmp_path / "token"))
    (tmp_path / "token").write_text("two words")
    assert "token holds no join token" in await _refused("--token-file", str(tmp_path / "token"))
    authority = Authority(tmp_path)
    one, two = authority.pair("one"), authority.pair("two")
    refused = await _refused("--tls-cert", str(one.cert), "--tls-key", str(two.key))
    assert "no certificate with its key" in refused


@pytest.mark.parametrize(("router", "number"), [("127.0.0.1:1", 0), ("192.0.2.1:1", 1)])
async def test_a_token_in_plaintext_is_said_aloud(router: str, number: int) -> None:
    with structlog.testing.capture_logs() as logs:
        await _refused("--join", router, "--token", "t")  # for the model
    assert len([line for line in logs if "plaintext (no --router-ca)" in line["event"]]) == number


def test_without_a_home_there_is_no_place_for_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(StartError, match="set HOME or XDG_CACHE_HOME, or pass --cache-dir"):
        _ = WorkerSettings(model="m").cache_directory
    assert str(WorkerSettings(model="m", cache_dir="/cache").cache_directory) == "/cache"  # type: ignore[arg-type]  # pydantic makes it a path


async def test_a_name_that_no_router_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartError, match="line breaks; --served-model-name gives it another"):
        await serve(WorkerSettings(model="/models/two\nlines"), asyncio.Event())
