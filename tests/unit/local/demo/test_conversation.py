"""A conversation of the demo: whether what it should have forgotten really was out of sight."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya import AsyncClient
from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_local.demo.conversation import Conversation
from kakeya_local.demo.scripts import UNKNOWN, Line, Script
from kakeya_local.demo.turn import Turn
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import SINK, WINDOW, ScriptedRuntime

TOLD = "Rex"
ASKED = Line("?", UNKNOWN, TOLD)


async def last_turn(
    runtime: ScriptedRuntime, directory: Path, *lines: Line, answers: tuple[str, ...], system: str = "Talk"
) -> Turn:
    """Says the lines, which are answered so, after a system prompt that fills the sinks."""
    tokenizer = ChatTokenizer(str(directory))
    runtime.answers += [[*tokenizer._tokenizer.encode(answer), 0] for answer in answers]
    script = Script("a talk", system, lines)
    async with AsyncClient(runtime.address) as client, await client.create_session(eos_token_ids=[0]) as session:
        conversation = Conversation(1, script, tokenizer, session, num_pinned=len(system))
        turns = [(await conversation.take_turn(number))[0] for number in range(1, len(lines) + 1)]
    return turns[-1]


@pytest.fixture(scope="module")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a tokenizer that makes one id of each letter."""
    folder = tmp_path_factory.mktemp("plain")
    tiny_tokenizer.save(folder, template=False, markers=False)
    return folder


@pytest.fixture
def runtime() -> Iterator[ScriptedRuntime]:
    runtime = ScriptedRuntime()
    yield runtime
    runtime.stop()


async def test_what_was_told_long_ago_is_out_of_sight(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    length = SINK + WINDOW
    turn = await last_turn(runtime, tokenizer_dir, Line(TOLD), Line("x" * length), ASKED, answers=("a", "b", "c"))
    assert not turn.still_in_sight
    assert turn.expected == UNKNOWN


async def test_what_was_told_just_now_is_in_sight(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    turn = await last_turn(runtime, tokenizer_dir, Line(TOLD), ASKED, answers=("a", "b"))
    assert turn.still_in_sight


async def test_what_an_answer_repeated_is_in_sight_with_it(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    filler = Line("x" * (SINK + WINDOW))
    turn = await last_turn(runtime, tokenizer_dir, Line(TOLD), filler, ASKED, answers=("a", TOLD, "c"))
    assert turn.still_in_sight


@pytest.mark.parametrize(("num_letters", "is_seen"), [(13, True), (14, False)])
async def test_a_turn_is_in_sight_until_all_of_it_is_gone(
    runtime: ScriptedRuntime, tokenizer_dir: Path, num_letters: int, is_seen: bool
) -> None:
    # After the pinned tokens 0:4 the turn is 4:11 (newline, "Rex", newline, "a", the end). The question begins and
    # ends with a newline, and of both together the last 16 tokens are seen: from 11 on, if it has 14 letters.
    question = Line("?" * num_letters, UNKNOWN, TOLD)
    turn = await last_turn(runtime, tokenizer_dir, Line(TOLD), question, answers=("a", "b"))
    assert turn.still_in_sight == is_seen


async def test_what_the_sinks_hold_is_always_in_sight(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    lines = (Line(TOLD), Line("x" * 100), ASKED)
    assert (await last_turn(runtime, tokenizer_dir, *lines, answers=("a", "b", "c"), system="")).still_in_sight


async def test_what_the_runtime_does_not_say_proves_nothing(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.is_old = True
    turn = await last_turn(runtime, tokenizer_dir, Line(TOLD), Line("x" * 40), ASKED, answers=("a", "b", "c"))
    assert turn.still_in_sight
