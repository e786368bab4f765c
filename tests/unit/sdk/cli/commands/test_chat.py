"""`kakeya chat`, against a scripted runtime: piped, and in a terminal."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kakeya import AppendResult, GenerateResult, StopReason
from kakeya.cli.commands import chat
from kakeya.cli.output.terminal import Terminal
from kakeya.cli.talk import talk as talk_module
from kakeya.cli.talk.conversation import statistics
from kakeya.text.chat_tokenizer import ChatTokenizer
from tests.unit.sdk.chatting import Talk, encode, sent
from tests.unit.sdk.screen import Screen
from tests.unit.sdk.scripted_runtime import BYTES_PER_TOKEN, FINGERPRINT, SINK, WINDOW, ScriptedRuntime, fails


def test_each_turn_sends_only_what_is_new(
    talk: Talk, runtime: ScriptedRuntime, tokenizer: ChatTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime.answers += [
        encode(tokenizer, "Grüße!<|im_end|>"),
        encode(tokenizer, "cut"),
        encode(tokenizer, "Bye<|im_end|>"),
    ]
    assert talk("hello\n\nagain\nlast", "--max-tokens", "9", "--system", "Be brief") == 0
    assert sent(tokenizer, runtime)[:2] == [
        "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n",
        "\n<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n",
    ]
    # The second answer was cut off by --max-tokens, so the end of its message is sent for it.
    assert sent(tokenizer, runtime)[2] == "<|im_end|>\n<|im_start|>user\nlast<|im_end|>\n<|im_start|>assistant\n"
    assert list(runtime.requests["CreateSession"][0].eos_token_ids) == tokenizer.eos_token_ids
    output = capsys.readouterr().out.splitlines()
    assert (output[0], output[2]) == ("Grüße!", "Bye")
    assert runtime.sessions == {}


def test_statistics_of_a_turn(talk: Talk, runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str]) -> None:
    assert talk("hello\n", "--max-tokens", "2") == 0
    note = capsys.readouterr().err.splitlines()[-1]
    num_new = len(runtime.requests["AppendTokens"][0].token_ids)
    assert note.startswith(f"[{num_new} new tokens, prefill 250 ms | 2 generated at ")
    assert note.endswith(
        f"/s (max_tokens) | history {num_new + 2} | kv_live_bytes {(SINK + WINDOW) * BYTES_PER_TOKEN:,} | "
        f"evicted 12, sees the first {SINK} and the last {WINDOW}]"
    )


def test_a_short_history_is_seen_whole(talk: Talk, plain_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert talk("hi\n", "--max-tokens", "1", tokenizer=plain_dir) == 0
    note = capsys.readouterr().err.splitlines()[-1]
    assert note == (
        "[3 new tokens, prefill 250 ms | 1 generated (max_tokens) | history 4 | "
        f"kv_live_bytes {4 * BYTES_PER_TOKEN:,} | evicted 12, sees all]"
    )


def test_what_the_model_sees_is_told_whatever_its_policy() -> None:
    done = GenerateResult(StopReason.EOS, 1, 0.0, 0.0, 0, "op", 0, 2000, 0, ())
    appended = AppendResult(2000, 0, 0.0, 0, ())
    for retained, sight in (
        ((range(2000),), "sees all"),
        ((range(4), range(1000, 1064), range(1990, 2000)), "sees the first 4 and 1000:1064 and the last 10"),
        ((range(1984, 2000),), "sees the last 16"),
    ):
        note = statistics(1, appended, replace(done, retained=retained), None)
        assert note.endswith(f", {sight}]")


def test_without_a_template_text_is_sent_as_it_is(
    talk: Talk, runtime: ScriptedRuntime, plain_dir: Path, tokenizer: ChatTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert talk("hi\nmore\n", "--max-tokens", "1", "--system", "Once", tokenizer=plain_dir) == 0
    assert sent(tokenizer, runtime) == ["Once\nhi\n", "\nmore\n"]
    assert f"tokenizer {plain_dir}; no chat template: plain text\n" in capsys.readouterr().err
    assert list(runtime.requests["CreateSession"][0].eos_token_ids) == []


def test_sampling_flags_and_variables_reach_the_runtime(
    talk: Talk, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAKEYA_CHAT_TEMPERATURE", "0.5")
    monkeypatch.setenv("KAKEYA_CHAT_TOP_K", "3")
    monkeypatch.setenv("KAKEYA_CHAT_MODEL", "counter")
    monkeypatch.setenv("KAKEYA_CHAT_FREQUENCY_PENALTY", "0.5")
    flags = ("--top-k", "4", "--top-p", "0.5", "--min-p", "0.25", "--presence-penalty", "-1.5", "--seed", "0")
    assert talk("hi\n", "--max-tokens", "1", *flags) == 0
    request = runtime.requests["Generate"][0]
    assert (request.temperature, request.top_k, request.top_p) == (0.5, 4, 0.5)
    assert (request.HasField("seed"), request.seed) == (True, 0)
    assert (request.min_p, request.presence_penalty, request.frequency_penalty) == (0.25, -1.5, 0.5)
    assert runtime.requests["CreateSession"][0].model == "counter"


@pytest.mark.parametrize("flags", [[], ["--inexact-resume"]])
def test_going_on_under_another_fingerprint_must_be_allowed(
    talk: Talk, runtime: ScriptedRuntime, flags: list[str]
) -> None:
    assert talk("hi\n", "--max-tokens", "1", *flags) == 0
    assert runtime.requests["CreateSession"][0].inexact_resume == bool(flags)


@pytest.mark.parametrize("flags", [["--max-tokens", "0"], ["--max-tokens", "x"], ["--top-p", "x"], ["--nonsense"]])
def test_a_bad_flag_is_a_usage_error(talk: Talk, flags: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        talk("", *flags)
    assert raised.value.code == 2


def test_help_names_a_variable_for_each_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        chat.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    flags = (
        "ADDRESS",
        "MODEL",
        "TOKENIZER",
        "SYSTEM",
        "NO_PIN",
        "MAX_TOKENS",
        "TEMPERATURE",
        "TOP_P",
        "TOP_K",
        "MIN_P",
        "PRESENCE_PENALTY",
        "FREQUENCY_PENALTY",
        "SEED",
        "INEXACT_RESUME",
        "NO_COLOR",
    )
    assert all(f"KAKEYA_CHAT_{flag}" in text for flag in flags)


def test_commands(talk: Talk, runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str]) -> None:
    runtime.boundaries = [7, 1_200]
    assert talk("hello\n/info\n/nonsense\n/quit\nhi\n", "--max-tokens", "2") == 0
    notes = capsys.readouterr().err
    assert ", 32,768 bytes reserved, exact\n" in notes
    length = len(runtime.requests["AppendTokens"][0].token_ids) + 2
    assert f"retained  0:{SINK}, {length - WINDOW}:{length}\n" in notes
    assert "boundaries  7, 1,200\n" in notes
    assert "exact  yes" in notes
    assert f"num_forgotten_tokens  {length - SINK - WINDOW}\n" in notes
    assert f"fingerprint  {FINGERPRINT}" in notes
    assert "reserved_bytes  32,768" in notes
    assert "state  open" in notes
    assert "/nonsense is no command" in notes
    assert len(runtime.requests["AppendTokens"]) == 1


@pytest.mark.parametrize("reason", ["WORKER_LOST", "APPEND_TOO_LONG"])
def test_a_failure_ends_a_piped_chat(
    talk: Talk, runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    runtime.before["AppendTokens"].append(fails(reason))
    assert talk("hi\nmore\n") == 1
    assert capsys.readouterr().err.endswith(f"kakeya chat: error: scripted {reason}\n")
    assert runtime.sessions == {}


def test_a_runtime_that_is_not_there(
    talk: Talk, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(talk_module, "PATIENCE_SECONDS", 60.0)
    runtime.stop()
    assert talk("hi\n") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"kakeya chat: error: no runtime answers at {runtime.address} (")
    assert "`kakeya up`" in error


def test_whoever_waits_for_a_lane_is_told_so(
    talk: Talk, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = threading.Event()
    note = Terminal.note

    def tell(terminal: Terminal, text: str) -> None:
        note(terminal, text)
        told.set()

    def wait_until_told(_: object) -> None:
        assert told.wait(60)

    monkeypatch.setattr(Terminal, "note", tell)
    monkeypatch.setattr(talk_module, "PATIENCE_SECONDS", 0.05)
    runtime.before["CreateSession"].append(wait_until_told)
    assert talk("") == 0
    assert capsys.readouterr().err.startswith("waiting for a free lane (Ctrl-C leaves)\nsession counter.0 on ")


def test_whoever_waits_leaves_when_they_want(talk: Talk, runtime: ScriptedRuntime) -> None:
    left_seconds = []
    runtime.before["CreateSession"].append(lambda context: left_seconds.append(context.time_remaining()))
    assert talk("") == 0
    assert left_seconds[0] is None or left_seconds[0] > 1e6, "no time-out"


def test_whoever_need_not_wait_is_told_nothing_of_it(talk: Talk, capsys: pytest.CaptureFixture[str]) -> None:
    assert talk_module.PATIENCE_SECONDS == 2.0
    assert talk("") == 0
    assert "waiting" not in capsys.readouterr().err


def test_a_tokenizer_that_is_not_there(talk: Talk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert talk("hi\n", tokenizer=tmp_path) == 1
    assert f"no tokenizer can be loaded from '{tmp_path}'" in capsys.readouterr().err
    assert talk("hi\n", tokenizer=tmp_path / "nowhere") == 1
    assert capsys.readouterr().err == f"kakeya chat: error: {tmp_path / 'nowhere'} is no directory\n"


def test_the_missing_extra_is_named(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert talk("hi\n") == 1
    assert "a tokenizer needs an extra; install it with: pip install 'kakeya[tokenizer]'" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_closes_the_session(talk: Talk, runtime: ScriptedRuntime, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    runtime.hold_after, runtime.on_hold = 1, lambda: os.kill(os.getpid(), number)
    assert talk("hi\nmore\n") == 128 + number
    assert len(runtime.requests["Generate"]) == 1
    assert runtime.sessions == {}
    assert signal.getsignal(number) is before


def test_a_signal_to_end_keeps_its_meaning_where_ctrl_c_is_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a job that a script put in the background
    before = signal.getsignal(signal.SIGTERM)
    with Terminal(color=False):
        assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("ignored", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_ignored_at_the_start_stays_ignored(ignored: signal.Signals) -> None:
    before = signal.signal(ignored, signal.SIG_IGN)  # as under nohup
    try:
        with Terminal(color=False) as terminal:
            os.kill(os.getpid(), ignored)
            assert signal.getsignal(ignored) is signal.SIG_IGN
        assert terminal.ended_by is None
        assert signal.getsignal(ignored) is signal.SIG_IGN
    finally:
        signal.signal(ignored, before)


def test_a_signal_that_the_answer_outran_still_ends(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    def end_and_read(terminal: Terminal) -> str | None:
        terminal.ended_by = signal.SIGTERM
        return read_line(terminal)

    read_line = Terminal.read_line
    monkeypatch.setattr(Terminal, "read_line", end_and_read)
    assert talk("hi\n") == 143


def test_ctrl_c_ends_a_piped_chat(talk: Talk, runtime: ScriptedRuntime) -> None:
    runtime.hold_after, runtime.on_hold = 1, lambda: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):  # which the `kakeya` command makes exit status 130
        talk("hi\nmore\n")
    assert runtime.sessions == {}


def chat_at(screen: Screen, runtime: ScriptedRuntime, folder: Path, script: Callable[[], None]) -> int:
    """Chats here, in the main thread as Ctrl-C needs it, while `script` types."""

    def type_and_leave() -> None:
        try:
            script()
        finally:
            screen.type("\x04")

    typist = threading.Thread(target=type_and_leave, daemon=True)
    typist.start()
    try:
        return chat.main(["--address", runtime.address, "--tokenizer", str(folder)])
    finally:
        typist.join(60)
        screen.close()


def test_a_chat_at_a_terminal(
    runtime: ScriptedRuntime, template_dir: Path, tokenizer: ChatTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.answers += [
        encode(tokenizer, "Hello<|im_end|>"),
        encode(tokenizer, "Well"),
        encode(tokenizer, "Yes<|im_end|>"),
    ]
    runtime.before["AppendTokens"].append(fails("APPEND_TOO_LONG"))
    screen = Screen(monkeypatch)

    def script() -> None:
        screen.wait_for("> ")
        screen.type("too long\n")
        screen.wait_for("error: scripted APPEND_TOO_LONG")
        screen.type("hi\n")
        screen.wait_for("(eos)")
        runtime.hold_after, runtime.on_hold = 4, lambda: os.kill(os.getpid(), signal.SIGINT)
        screen.type("go on\n")
        screen.wait_for("[stopped after ")
        runtime.hold_after = None
        screen.type("more\n")
        screen.wait_for("Yes")
        screen.wait_for("> ", 5)

    assert chat_at(screen, runtime, template_dir, script) == 0, screen.shown
    assert "\x1b[2m[" in screen.shown  # statistics are dim
    assert sent(tokenizer, runtime)[1].startswith("<|im_start|>user\nhi")  # the refused one began nothing
    assert sent(tokenizer, runtime)[-1].startswith("<|im_end|>\n<|im_start|>user\nmore")
    assert runtime.sessions == {}


def test_ctrl_c_at_the_prompt_leaves(
    runtime: ScriptedRuntime, template_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(monkeypatch)

    def script() -> None:
        screen.wait_for("> ")
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        chat_at(screen, runtime, template_dir, script)
    assert runtime.sessions == {}


@pytest.mark.parametrize("leaving", ["/quit", "/bye"])
def test_a_chat_is_left(leaving: str, talk: Talk, runtime: ScriptedRuntime) -> None:
    assert talk(f"hello\n{leaving}\nagain\n", "--max-tokens", "2") == 0
    assert len(runtime.requests["AppendTokens"]) == 1


def test_a_chat_template_of_a_file(
    talk: Talk, runtime: ScriptedRuntime, tmp_path: Path, tokenizer: ChatTokenizer
) -> None:
    file = tmp_path / "own.jinja"
    file.write_text("{% for message in messages %}<{{ message.role }}> {{ message.content }}\n{% endfor %}")
    assert talk("hello\n", "--max-tokens", "2", "--chat-template", str(file)) == 0
    assert sent(tokenizer, runtime) == ["<user> hello\n"]


def test_a_bad_chat_template_of_a_file_is_told(talk: Talk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert talk("hello\n", "--chat-template", str(tmp_path / "none.jinja")) == 1
    file = tmp_path / "none.jinja"
    error = f"kakeya chat: error: the chat template {file} cannot be read: No such file or directory\n"
    assert capsys.readouterr().err == error


def test_a_signal_to_end_is_heeded_where_ctrl_c_is_ignored_if_that_is_asked_for() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Terminal(color=False, heeds_endings=True) as terminal:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        assert terminal.ended_by == signal.SIGTERM
