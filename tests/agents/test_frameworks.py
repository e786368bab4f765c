"""Agents of frameworks call a tool, twice in one conversation: each turn goes on in its session."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.agents.clients import FRAMEWORKS, Framework
from tests.agents.results import Results
from tests.loops.calls import call_text, call_tokens
from tests.loops.families import FamilyModel
from tests.loops.judging import outcome
from tests.loops.recorder import Exchange
from tests.loops.stage import Stage
from tests.loops.talking import Driver, driver

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
_CITIES = ("Zürich", "東京")
_SYSTEM = "You say how the weather will be. "
_MAX_TOKENS = 400


@pytest.fixture(scope="module", params=FRAMEWORKS, ids=lambda framework: framework.name)
def framework(request: pytest.FixtureRequest) -> Framework:
    found: Framework = request.param
    return found


@pytest.fixture(scope="module")
def talker(framework: Framework, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    command, directory = framework.command()
    with driver(command, directory, tmp_path_factory.mktemp("driver") / "log") as made:
        yield made


def said(model: FamilyModel) -> list[str]:
    """A call and an answer for each question, behind a thought where the model has some."""
    thought = "<think>\nHm.\n</think>\n\n" if model.family.thinks else ""
    calls = (call_text(model.family.name, ("get_weather", {"city": city, "days": 2})) for city in _CITIES)
    return [thought + text for city, call in zip(_CITIES, calls, strict=True) for text in (call, f"Sun in {city}.")]


def messages(exchange: Exchange) -> list[Any]:
    """Or items, as responses have them."""
    found: list[Any] = exchange.body["messages" if "messages" in exchange.body else "input"]
    return found


def api(framework: Framework) -> str:
    """That it speaks."""
    if "responses" in framework.name:
        return "/v1/responses"
    return "/v1/messages" if "anthropic" in framework.name else "/v1/chat/completions"


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
@pytest.mark.parametrize("name", ["Qwen3", "Mistral"])
def test_an_agent_calls_its_tool(
    framework: Framework, talker: Driver, agents_stage: Stage, results: Results, name: str, streams: bool
) -> None:
    model = agents_stage.models[name]
    held = talker.hold(
        agents_stage,
        model,
        [f"{framework.name} {streams}: how is {city}?" for city in _CITIES],
        [call_tokens(model, text) for text in said(model)],
        system=_SYSTEM,
        max_tokens=_MAX_TOKENS,
        streams=streams,
    )
    for each in held.exchanges:
        print(each.status, each.refusal, each.session, *messages(each), sep="\n  ")
    assert not held.error
    assert held.answers == [f"Sun in {city}." for city in _CITIES]
    assert len(held.exchanges) == 2 * len(_CITIES)
    for exchange, city in zip(held.exchanges[1::2], _CITIES, strict=True):
        assert f"2 days of sun in {city}" in str(messages(exchange)[-1]), "what its tool made of the arguments"
    assert all(bool(each.body.get("stream")) == streams for each in held.exchanges)
    found = outcome(held.exchanges)
    results.add(f"{framework.name} {talker.version}", api(framework), held.exchanges[0], found)
    assert (found.num_turns, found.reasons) == (2 * len(_CITIES) - 1, {})
    assert len({each.session["id"] for each in held.exchanges}) == 1
