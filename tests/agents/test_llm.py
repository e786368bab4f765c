"""Simon Willison's `llm`: it calls a tool, and goes on in the same session with `-c`, in processes of their own."""

import json
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.drivers import weather
from tests.agents.results import Results
from tests.loops import played_verifier
from tests.loops.calls import call_text, call_tokens
from tests.loops.judging import outcome
from tests.loops.stage import Stage

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
_NAME = "kakeya"


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
def test_it_calls_a_tool_and_goes_on(agents_stage: Stage, tmp_path: Path, results: Results, streams: bool) -> None:
    command = programs.of_pypi("llm", "llm")
    version = programs.version(command, tmp_path / "version")
    model, recorder = agents_stage.models["Coder"], agents_stage.recorder
    settings = tmp_path / "settings"
    settings.mkdir()
    named = {"model_id": _NAME, "model_name": model.family.model, "api_base": agents_stage.base_url}
    (settings / "extra-openai-models.yaml").write_text(json.dumps([{**named, "supports_tools": True}]))
    agent = programs.made(command, tmp_path / "run", {"LLM_USER_PATH": str(settings)})
    texts = [call_text("Coder", ("get_weather", {"city": "Bern", "days": 2})), "Sun.", "Rain."]
    played_verifier.play(model.folder, [call_tokens(model, text) for text in texts])
    told = ["-m", _NAME, "--functions", str(weather.__file__), *([] if streams else ["--no-stream"])]
    assert "Sun." in agent.run(*told, f"{streams}: how is Bern?", "-s", "Be brief.")
    assert "Rain." in agent.run(*told, "-c", "And Basel?")
    exchanges = recorder.take()
    print([(each.status, each.session, each.body["messages"]) for each in exchanges])
    assert len(exchanges) == 3
    assert exchanges[1].body["messages"][-1]["content"] == "2 days of sun in Bern"
    assert all(bool(each.body.get("stream")) == streams for each in exchanges)
    found = outcome(exchanges)
    results.add(f"llm {version}", "/v1/chat/completions", exchanges[0], found)
    assert (found.num_turns, found.reasons) == (2, {})
