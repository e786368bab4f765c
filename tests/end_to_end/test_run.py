"""`kakeya run` as people and pipes use it: kakeya-nano, also out of a store laid out as Ollama's is."""

import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests import nano_gguf, ollama_files
from tests.end_to_end.marked_process import END_SECONDS, MarkedProcess
from tests.end_to_end.run_process import CTRL_C, RunInTerminal

pytestmark = pytest.mark.timeout(300)
GREETING = "Hello! How can I help you today?"
COST = r"\[\d+ new tokens, .* \| history \d+ \|.*\]"


class Piped(MarkedProcess):
    """`kakeya run` without a terminal."""

    def __init__(self, *words: str) -> None:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        super().__init__("run", *words, streams=pipes)

    def answer(self, said: str = "") -> tuple[int, str, str]:
        """Exit status, output and errors."""
        output, errors = self._popen.communicate(said.encode() or None, timeout=END_SECONDS)
        return self._popen.returncode, output.decode(), errors.decode()

    def close_input(self) -> None:
        assert self._popen.stdin
        self._popen.stdin.close()
        self._popen.stdin = None

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def wait_said(self, text: str) -> None:
        assert self._popen.stderr
        line = b""
        while text.encode() not in line:
            line = self._popen.stderr.readline()
            assert line, f"it never said {text!r}"


def check_nothing_left(run: MarkedProcess) -> None:
    assert run.processes() == []
    assert run.left_files() == []


def test_a_chat_in_a_terminal_with_a_model_of_ollamas_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C stops an answer and the chat goes on; at the prompt it ends the chat, and all that was started."""
    path = nano_gguf.write(tmp_path / "nano.gguf")
    ollama_files.add(tmp_path / "store", "nano", path.read_bytes(), "bf16")
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "store"))
    # So rewarded, what is said again and again is said without an end: no answer is over before Ctrl-C comes.
    endless = ("--frequency-penalty", "-2", "--max-tokens", "60000")
    with RunInTerminal("ollama:nano:bf16", "--window", "512", "--no-color", *endless) as run:
        run.wait_for("waiting for")
        run.wait_for(r"on nano:bf16: sink 4, window 512, .* bytes reserved")
        run.wait_for("> ")
        run.type("Hello!\n")
        run.wait_for(GREETING.replace("?", r"\?"))
        run.wait_for(COST)
        run.wait_for("> ")
        run.type("Count from 1 to 400.\n")
        run.wait_for("1.*2")
        run.type(CTRL_C)
        run.wait_for(r"\[stopped after \d+ tokens\]")
        run.wait_for("> ")
        run.type("/info\n")
        run.wait_for(r"history_length +\d+")
        run.wait_for("> ")
        assert len(run.processes()) > 4
        assert run.leave() == 130
        assert "stopping" in run.shown
        check_nothing_left(run)


def test_one_answer_through_pipes_is_all_of_the_output() -> None:
    with Piped("kakeya-nano", "Hello!", "--window", "512") as run:
        status, output, errors = run.answer()
        assert (status, output) == (0, f"{GREETING}\n")
        # The router comes first, and its worker may have joined by then.
        assert re.fullmatch(r"(kakeya run: waiting for (the router|workers to load kakeya-nano: .+)\n)+", errors), (
            errors
        )
        check_nothing_left(run)


def test_a_signal_while_it_loads_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Piped("kakeya-nano", "Hello!") as run:
        run.close_input()
        run.wait_said("waiting for")
        with monkeypatch.context() as patched:  # as Linux shows it while a process becomes another program
            patched.setattr(psutil.Process, "environ", lambda _: {})
            assert len(run.processes()) > 1
        run.signal(signal.SIGTERM)
        status, output, _ = run.answer()
        assert (status, output) == (128 + signal.SIGTERM, "")
        check_nothing_left(run)
