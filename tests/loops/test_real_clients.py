"""Unmodified clients hold conversations of their own, under the templates of six families: each turn goes on."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.loops import answers
from tests.loops.families import FAMILIES, FamilyModel
from tests.loops.judging import check_appended, check_repeated, check_reuse, outcome
from tests.loops.results import Results
from tests.loops.stage import Stage
from tests.loops.talking import Client, Driver, Held

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
_NUM_ACTS = 21
_ALL = [family.name for family in FAMILIES]
STRICT = ("Mistral", "Gemma 3")
"""Their templates take no two questions without an answer in between."""
LEAVE_OUT = ("openai-agents", "Vercel AI SDK")
"""They do not send back an answer that is empty."""
RAISES = "pydantic-ai"
"""It takes no empty answer."""


@pytest.fixture(params=_ALL)
def model(request: pytest.FixtureRequest, made_stage: Stage) -> FamilyModel:
    return made_stage.models[request.param]


def spoken(model: FamilyModel, texts: Sequence[str]) -> list[list[int]]:
    """Answers as the model says them, some behind a thought where it has some."""
    return [model.tokens(text, answers.thought(turn)) for turn, text in enumerate(texts)]


def check_heard(held: Held, model: FamilyModel, said: Sequence[Sequence[int]]) -> None:
    """The client has the answers that were said, in their order, but for white space around them."""
    meant = [model.content(token_ids[: answers.MAX_TOKENS]).strip() for token_ids in said]
    assert [each.strip() for each in held.answers] == meant[: len(held.answers)]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
def test_a_conversation(
    client: Client, talker: Driver, made_stage: Stage, model: FamilyModel, streams: bool, results: Results
) -> None:
    said = spoken(model, answers.TEXTS)
    held = talker.hold(
        made_stage,
        model,
        answers.questions(len(said), f"{client.name} {streams}"),
        said,
        system=answers.SYSTEM,
        max_tokens=answers.MAX_TOKENS,
        streams=streams,
    )
    assert not held.error
    check_heard(held, model, said)
    found = outcome(held.exchanges)
    results.add(f"{client.name} {talker.version}", "24 turns", model.family.name, found)
    assert (found.num_turns, found.reasons) == (len(said) - 1, {})
    assert len({each.session["id"] for each in held.exchanges}) == 1
    check_reuse(held, said, answers.MAX_TOKENS)
    check_appended(held.exchanges, model)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
def test_an_agent_that_acts(
    client: Client, talker: Driver, made_stage: Stage, model: FamilyModel, streams: bool, results: Results
) -> None:
    """What it makes up behind the stop text is taken back, and what the client has of it appended."""
    said = [model.tokens(answers.act(turn)) for turn in range(_NUM_ACTS)]
    questions = [f"{client.name} {streams}: which items are odd?", *map(answers.observed, range(_NUM_ACTS - 1))]
    held = talker.hold(
        made_stage,
        model,
        questions,
        said,
        max_tokens=answers.MAX_TOKENS,
        streams=streams,
        stop=[answers.OBSERVATION],
    )
    assert not held.error
    assert [each.strip() for each in held.answers] == [answers.acted(turn).strip() for turn in range(_NUM_ACTS)]
    found = outcome(held.exchanges)
    results.add(f"{client.name} {talker.version}", f"{_NUM_ACTS} steps of ReAct, `stop`", model.family.name, found)
    assert (found.num_turns, found.reasons) == (_NUM_ACTS - 1, {})
    assert {each.why for each in held.exchanges[1:]} == {"cut-answer"}
    check_repeated(held.exchanges, model)


def test_answers_that_say_nothing(
    client: Client, talker: Driver, made_stage: Stage, model: FamilyModel, results: Results
) -> None:
    texts = [text for nothing in answers.NOTHING for text in ("Yes.", nothing)] + ["Yes."]
    said = [model.tokens(text) for text in texts]
    questions = answers.questions(len(said), f"{client.name}, nothing")
    told: dict[str, Any] = {"system": answers.SYSTEM, "max_tokens": answers.MAX_TOKENS, "streams": False}
    held = talker.hold(made_stage, model, questions, said, **told)
    found = outcome(held.exchanges)
    results.add(f"{client.name} {talker.version}", "empty answers", model.family.name, found)
    if client.name == RAISES:
        assert held.error.startswith("UnexpectedModelBehavior")
        assert (found.num_turns, found.reasons) == (1, {})
    elif client.name not in LEAVE_OUT:
        assert (held.error, found.num_turns, found.reasons) == ("", len(said) - 1, {})
    elif model.family.name in STRICT:
        assert "the chat template refuses" in held.error
        assert (found.num_turns, found.reasons) == (2, {"refused (status 400)": 1})
    else:
        assert (held.error, found.num_turns, found.reasons) == ("", len(said) - 1, {"forked (earlier-place)": 1})
