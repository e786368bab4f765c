import io
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya.cli.commands import chat
from kakeya.text.chat_tokenizer import ChatTokenizer
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.chatting import Talk
from tests.unit.sdk.cuttable_link import CuttableLink
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Ctrl-C has its meaning, also where this process was started in the background, or a test left another one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def runtime() -> Iterator[ScriptedRuntime]:
    runtime = ScriptedRuntime()
    yield runtime
    runtime.stop()


@pytest.fixture
def admin() -> Iterator[ScriptedAdmin]:
    admin = ScriptedAdmin()
    yield admin
    admin.stop()


@pytest.fixture
def link(runtime: ScriptedRuntime) -> Iterator[CuttableLink]:
    link = CuttableLink(runtime.port)
    yield link
    link.close()


@pytest.fixture(scope="session")
def template_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("with-template")
    tiny_tokenizer.save(folder, template=True)
    return folder


@pytest.fixture(scope="session")
def plain_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    tiny_tokenizer.save(folder, template=False, markers=False)
    return folder


@pytest.fixture
def tokenizer(template_dir: Path) -> ChatTokenizer:
    return ChatTokenizer(str(template_dir))


@pytest.fixture
def talk(runtime: ScriptedRuntime, template_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Talk:
    def talk(text: str, *flags: str, tokenizer: Path = template_dir) -> int:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return chat.main(["--address", runtime.address, "--tokenizer", str(tokenizer), *flags])

    return talk


@pytest.fixture
def untold(runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """A chat that is told no tokenizer."""
    monkeypatch.delenv("KAKEYA_TOKENIZER", raising=False)

    def talk(text: str, *flags: str) -> int:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return chat.main(["--address", runtime.address, *flags])

    return talk
