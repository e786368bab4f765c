"""`kakeya run` up to the start of a stack, and with a scripted runtime in a stack's place."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kakeya.cli.flags.connection import Connection
from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_local import run_command
from kakeya_local.errors import StackError
from kakeya_local.run import run
from kakeya_local.settings import UpSettings
from kakeya_local.stack.stack import Report
from tests import ollama_files
from tests.gguf_bytes import gguf
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

ANSWER = "Good day<|im_end|>"


@pytest.fixture(autouse=True)
def plain_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "store"))


@pytest.fixture
def runtime() -> Iterator[ScriptedRuntime]:
    made = ScriptedRuntime()
    yield made
    made.stop()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory that looks like a model's, with a tokenizer; no weights are looked at."""
    (tmp_path / "model").mkdir()
    tiny_tokenizer.save(tmp_path / "model", template=True)
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path / "model"


class ScriptedStack:
    """What is started, and whether it was stopped."""

    settings: UpSettings
    num_stops = 0
    fault: BaseException | None = None
    failure: StackError | None = None
    address = ""

    def __init__(self, settings: UpSettings, report: Report) -> None:
        ScriptedStack.settings = settings
        self._report = report

    def start(self) -> None:
        self._report("waiting for the router")

    def wait_ready(self) -> Connection:
        if self.fault is not None:
            raise self.fault
        return Connection(self.address)

    def stop(self) -> None:
        self._report("stopping")
        ScriptedStack.num_stops += 1


@pytest.fixture
def stack(runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch) -> type[ScriptedStack]:
    for name, value in (("num_stops", 0), ("fault", None), ("failure", None), ("address", runtime.address)):
        monkeypatch.setattr(ScriptedStack, name, value)
    monkeypatch.setattr(run, "BackgroundStack", ScriptedStack)
    return ScriptedStack


def asked(monkeypatch: pytest.MonkeyPatch, said: str, *words: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(said))
    return run_command.main([*words])


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("kakeya run: error: ")


def test_a_prompt_is_answered_alone(
    stack: type[ScriptedStack],
    runtime: ScriptedRuntime,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is piped stands before the words. The stack is one for one session, which keeps nothing."""
    tokenizer = ChatTokenizer(str(model))
    runtime.answers.append(tokenizer.encode(ANSWER, special_tokens=False))
    words = ("--window", "max", "What", "--threads", "2", "now?", "--max-tokens", "9", "--no-color")
    assert asked(monkeypatch, "A text.\n", str(model), *words) == 0
    said = capsys.readouterr()
    assert said.out == "Good day\n"
    assert said.err.splitlines()[0] == "kakeya run: waiting for the router"
    assert "sees" not in said.err.replace("still sees", ""), "no line on what it cost"
    (request,) = runtime.requests["AppendTokens"]
    assert "user\nA text.\n\nWhat now?<|im_end|>" in tokenizer.decode(list(request.token_ids), special_tokens=True)
    assert runtime.requests["Generate"][0].max_tokens == 9
    assert runtime.sessions == {}
    settings = stack.settings
    assert (settings.model, settings.window, settings.threads, settings.lanes) == (str(model), "max", 2, 1)
    assert (settings.http_bind, settings.bind, settings.ephemeral) == (None, "127.0.0.1:0", True)
    assert stack.num_stops == 1


def test_an_answer_that_is_cut_off_is_told(
    stack: type[ScriptedStack], model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(monkeypatch, "hello", str(model), "--max-tokens", "2") == 0
    assert capsys.readouterr().err.endswith("\n[the answer was cut off at 2 tokens; --max-tokens takes more]\n")


def test_a_chat_template_takes_the_place_of_the_models(
    stack: type[ScriptedStack],
    runtime: ScriptedRuntime,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "own.jinja"
    file.write_text("{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}")
    assert asked(monkeypatch, "hello", str(model), "--chat-template", str(file), "--max-tokens", "1") == 0
    sent = ChatTokenizer(str(model)).decode(list(runtime.requests["AppendTokens"][0].token_ids))
    assert sent == "[user] hello\n"


@pytest.mark.parametrize("variable", ["KAKEYA_UP_WORKERS", "KAKEYA_UP_SLAB_BYTES", "KAKEYA_UP_CHAT_TEMPLATE"])
def test_what_is_set_for_other_stacks_does_not_count(
    variable: str, stack: type[ScriptedStack], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "7")
    assert asked(monkeypatch, "hello", str(model), "--max-tokens", "1") == 0
    settings = stack.settings
    assert (settings.backends, settings.slab_bytes, settings.chat_template) == ((None,), None, None)


def test_a_stack_that_cannot_start_is_stopped_and_told(
    stack: type[ScriptedStack], model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stack.fault = StackError("worker-1: the kakeya.verifier plugin 'mlx' needs the module 'mlx'; install it with: ...")
    assert asked(monkeypatch, "hello", str(model)) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"kakeya run: error: {stack.fault}"
    assert stack.num_stops == 1


@pytest.mark.parametrize("lost", [None, StackError("worker-1: keeps ending")])
def test_what_goes_wrong_in_an_answer_is_told_with_its_cause(
    lost: StackError | None,
    stack: type[ScriptedStack],
    runtime: ScriptedRuntime,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where the stack itself was lost, that is the cause, and the call that failed by it says nothing more."""
    stack.failure = lost
    runtime.before["CreateSession"].append(fails("SESSION_NOT_FOUND"))
    assert asked(monkeypatch, "hello", str(model)) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert (line == "kakeya run: error: worker-1: keeps ending") == (lost is not None)
    assert stack.num_stops == 1


def test_ctrl_c_ends_it(stack: type[ScriptedStack], model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.fault = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):  # of which `kakeya` makes 130
        asked(monkeypatch, "hello", str(model))
    assert stack.num_stops == 1


def test_what_is_wrong_is_told_in_one_line_before_anything_is_started(
    stack: type[ScriptedStack], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    ollama_files.add(tmp_path / "store", "tiny", b"GGUF")
    (tmp_path / "cut.gguf").write_bytes(gguf({"general.architecture": "qwen3"})[:-1])
    (tmp_path / "bad.jinja").write_text("{% for %}")
    monkeypatch.delattr(stack, "start")
    assert asked(monkeypatch, "hello", "nonesuch") == 1
    assert error_of(capsys).endswith("nor a hub id (owner/name); `kakeya models list` shows what is on this host")
    assert asked(monkeypatch, "hello", "tiny") == 1
    assert error_of(capsys).endswith("; Ollama's store has it as ollama:tiny:latest")
    assert asked(monkeypatch, "hello", str(tmp_path / "cut.gguf")) == 1
    assert error_of(capsys).endswith("it is cut off, or damaged: get it anew")
    assert asked(monkeypatch, "hello", str(model), "--chat-template", str(tmp_path / "bad.jinja")) == 1
    assert "bad.jinja is not Jinja: line 1: " in error_of(capsys)
    assert asked(monkeypatch, " \n", str(model)) == 2
    assert error_of(capsys).startswith("nothing is asked: ")


def test_parts_that_are_missing_are_told(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("kakeya_local.stack.planning.plan.entry_points", lambda group: [])
    assert asked(monkeypatch, "hello", str(model)) == 1
    assert error_of(capsys) == "`kakeya router` is not installed; install it with: pip install 'kakeya-router'"


def test_flags_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command.main(["kakeya-nano", "--window", "none"])
    assert ended.value.code == 2
    assert "'none' is not a whole number from 1 on" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        run_command.main(["--window", "max"])
    assert ended.value.code == 2
    assert "required: MODEL\n" in capsys.readouterr().err
