"""A slice of `make test-loops`: the `openai` package, and what an agent was recorded to say, under one template."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.agents import results as of_agents
from tests.loops import answers
from tests.loops.families import FAMILIES, FamilyModel
from tests.loops.judging import Outcome, check_appended, check_repeated, check_reuse, outcome
from tests.loops.recorder import Exchange
from tests.loops.results import Result, table, written
from tests.loops.stage import Stage, stage
from tests.loops.talking import HERE, ROOT, Driver, driver

_WINDOW = 512
_LONGEST = 4_000
_NUM_ACTS = 10
"""Their conversation outgrows the window."""
RECORDED = (
    ("# AGENTS.md\n\nWork the queue", 'I read the queue first.\n\n[Tool: exec({"cmd":"ls -l"})]'),
    ("[tool result] total 4\n-rw-r--r-- 1 nano  120 notes.md\n\n\n", '[Tool: exec({"cmd":"cat notes.md"})]'),
    (
        "[tool result] \u2014 one\n\u2014 two\n",
        "The notes say \u201cone\u201d and \u201ctwo\u201d.\n\n```diff\n-one\n+two\n```",
    ),
    ("Go on", "Done."),
)
"""Questions and answers as coding agents have them."""


@pytest.fixture(scope="module")
def made_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("stage"), FAMILIES[:1], _WINDOW) as made:
        yield made


@pytest.fixture(scope="module")
def model(made_stage: Stage) -> FamilyModel:
    (found,) = made_stage.models.values()
    return found


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with driver(HERE, ROOT, tmp_path_factory.mktemp("driver") / "log") as made:
        yield made


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
def test_a_conversation(made_stage: Stage, model: FamilyModel, talker: Driver, streams: bool) -> None:
    texts = (*answers.TEXTS[: None if streams else 8], *answers.NOTHING)
    said = [model.tokens(text, answers.thought(turn)) for turn, text in enumerate(texts)]
    questions = answers.questions(len(said), f"streams {streams}")
    told: dict[str, Any] = {"system": answers.SYSTEM, "max_tokens": answers.MAX_TOKENS, "streams": streams}
    held = talker.hold(made_stage, model, questions, said, **told)
    assert held.error == ""
    assert held.answers == [model.content(token_ids[: answers.MAX_TOKENS]).lstrip("\n") for token_ids in said]
    found = outcome(held.exchanges)
    assert (found.num_continued, found.reasons) == (len(said) - 1, {})
    check_reuse(held, said, answers.MAX_TOKENS)
    check_appended(held.exchanges, model)


def test_an_agent_that_acts(made_stage: Stage, model: FamilyModel, talker: Driver) -> None:
    said = [model.tokens(answers.act(turn)) for turn in range(_NUM_ACTS)]
    questions = ["Which items are odd?", *map(answers.observed, range(_NUM_ACTS - 1))]
    held = talker.hold(
        made_stage, model, questions, said, max_tokens=answers.MAX_TOKENS, streams=True, stop=[answers.OBSERVATION]
    )
    assert held.answers == [answers.acted(turn) for turn in range(_NUM_ACTS)]
    assert {each.why for each in held.exchanges[1:]} == {"cut-answer"}
    assert outcome(held.exchanges).num_continued == _NUM_ACTS - 1
    check_repeated(held.exchanges, model)


def test_what_was_recorded(made_stage: Stage, model: FamilyModel, talker: Driver) -> None:
    questions, texts = zip(*RECORDED, strict=True)
    said = [model.tokens(text) for text in texts]
    held = talker.hold(made_stage, model, questions, said, max_tokens=_LONGEST, streams=True)
    assert held.answers == list(texts)
    assert outcome(held.exchanges).reasons == {}
    check_reuse(held, said, _LONGEST)


def test_the_table() -> None:
    found = [
        Result("a 1", "24 turns", "Qwen3", 23, 23, {}),
        Result("a 1", "24 turns", "Qwen3", 23, 22, {"new (not-found)": 1}),
        Result("a 1", "24 turns", "nano", 23, 23, {}),
    ]
    *_, row = table(found)
    assert row == "| a 1 | 24 turns | 45 of 46 |  |  |  |  | 23 of 23 | 1 x new (not-found) |"
    page = "<!-- loops: made by make test-loops -->\nold\n<!-- end of loops -->\n"
    assert row in written(page, found)
    assert "old" not in written(page, found)
    with pytest.raises(ValueError, match="0 places"):
        written("", found)


def test_the_table_of_clients() -> None:
    found = of_agents.Results()
    system = {"role": "system", "content": "Be brief."}
    chat = Exchange({"messages": [system, {"role": "user", "content": "Hi"}], "tools": [{"type": "function"}]}, 200, {})
    found.add("a 1", "/v1/chat/completions", chat, Outcome(2, 2, {}))
    found.add("a 1", "/v1/chat/completions", chat, Outcome(2, 1, {"new (edited)": 1}))
    found.add("b 2", "/v1/messages", Exchange({"messages": [], "system": "Be brief."}, 200, {}), Outcome(1, 1, {}))
    *_, row, other = of_agents.table(found.found)
    letters = len('{"type": "function"}') + len('"Be brief."')
    assert row == f"| a 1 | `/v1/chat/completions` | 1 | {letters} | 3 of 4 | 1 x new (edited) |"
    assert other == "| b 2 | `/v1/messages` | 0 | 11 | 1 of 1 |  |"
    (*_, one), (*_, another) = (
        of_agents.table([replace(found.found[0], num_letters=each)]) for each in (30_849, 30_848)
    )
    assert one == another == "| a 1 | `/v1/chat/completions` | 1 | 31,000 | 2 of 2 |  |"
    page = "<!-- agents: made by make test-agents -->\nold\n<!-- end of agents -->\n"
    assert of_agents.written(page, found.found).splitlines()[3:5] == [row, other]
