"""`kakeya chat` as people run it, with a whole runtime: what it pins, refuses, and says of forgetting."""

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kakeya_shared import installed_models
from tests.integration.processes import SINK, WINDOW, Runtime, runtime

LANE_TOKENS = SINK + WINDOW
SYSTEM = "You are Kakeya, a small and friendly assistant. The secret word is falcon."


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A worker that serves the model of that name; the chat finds its tokenizer by the name."""
    model = installed_models.directory("kakeya-nano")
    with runtime(model, tmp_path_factory.mktemp("logs"), num_workers=1) as made:
        yield made


def chat(nano: Runtime, lines: list[str], *flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kakeya", "chat", "--address", nano.address, "--max-tokens", "8", *flags]
    return subprocess.run(command, input="\n".join([*lines, ""]), capture_output=True, text=True, timeout=60)


def found(pattern: str, text: str) -> list[int]:
    """The numbers in the first place that matches."""
    match = re.search(pattern, text)
    assert match, text
    return [int(number.replace(",", "")) for number in match.groups()]


def test_a_pinned_system_prompt_stays_in_sight_and_the_rest_is_said_to_be_forgotten(nano: Runtime) -> None:
    done = chat(
        nano,
        ["Hello!", "My dog is called Rex and my cat is called Tom.", "Repeat: the old owl sings", "/info"],
        "--system",
        SYSTEM,
    )
    assert done.returncode == 0, done.stderr
    (num_pinned,) = found(r"; the system prompt is pinned, (\d+) tokens\n", done.stderr)
    assert f" on kakeya-nano: sink {num_pinned}, window {LANE_TOKENS - num_pinned}, " in done.stderr
    assert f"\ntokenizer {installed_models.directory('kakeya-nano')}\n" in done.stderr
    assert f"leaves a window of {LANE_TOKENS - num_pinned} tokens" in done.stderr
    forgotten, pinned, last, length = found(
        r"\[forgotten: (\d+) of the oldest tokens, .*; the model still sees the pinned system prompt "
        r"\(the first (\d+) tokens\) and the last (\d+) tokens of (\d+)\]\n",
        done.stderr,
    )
    assert (pinned, last) == (num_pinned, LANE_TOKENS - num_pinned)
    assert forgotten == length - LANE_TOKENS > 0
    length = found(r" history_length  ([\d,]+)\n", done.stderr)[0]
    assert f" retained  0:{num_pinned}, {length - last}:{length}\n" in done.stderr
    assert f"\nnum_forgotten_tokens  {length - LANE_TOKENS:,}\n" in done.stderr
    assert [worker.num_sessions for worker in nano.list_workers()] == [0], "it closed its session"


@pytest.mark.parametrize("is_told", [False, True])
def test_a_system_prompt_too_long_to_be_pinned_is_refused(nano: Runtime, is_told: bool) -> None:
    flags = ["--tokenizer", "kakeya-nano"] if is_told else []  # then nobody asks for the size of lanes before
    done = chat(nano, ["Hello!"], "--system", f"{SYSTEM} " * 9, *flags)
    assert (done.returncode, done.stdout) == (1, "")
    (num_tokens,) = found(
        r"^kakeya chat: error: the system prompt has (\d+) tokens, too many to be pinned \(", done.stderr
    )
    assert num_tokens >= LANE_TOKENS
    assert (f"(a lane keeps {LANE_TOKENS})" in done.stderr) != is_told
    assert done.stderr.endswith("; shorten it, or let it be forgotten in time: --no-pin\n")
    assert [worker.num_sessions for worker in nano.list_workers()] == [0]
    assert chat(nano, [], "--system", f"{SYSTEM} " * 9, "--no-pin", *flags).returncode == 0


def test_another_models_tokenizer_is_refused(shared_runtime: Runtime) -> None:
    done = chat(shared_runtime, ["Hello!"], "--tokenizer", "kakeya-nano")
    assert done.returncode == 1
    assert done.stderr.startswith("kakeya chat: error: the tokenizer ")
    assert " is another model's (eos_token_ids: token id " in done.stderr
    assert not any(worker.num_sessions for worker in shared_runtime.list_workers())
