"""opencode itself, on `/v1/chat/completions`: it reads a file, answers, and goes on in its session in its next run."""

import json
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.conftest import WINDOW
from tests.agents.results import Results
from tests.agents.script import Script, has_tools
from tests.loops.calls import call_text
from tests.loops.judging import outcome
from tests.loops.stage import Stage

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
_SECRET = "The launch is on the 9th of May."
_MIN_TOOLS = 5


def configuration(base_url: str, model: str) -> dict[str, object]:
    """As in docs/clients.md."""
    limits = {"context": WINDOW, "output": 4096}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": base_url, "apiKey": "none"},
        "models": {model: {"limit": limits}},
    }
    return {"provider": {"kakeya": provider}, "model": f"kakeya/{model}"}


def test_it_reads_a_file_and_goes_on(agents_stage: Stage, tmp_path: Path, results: Results) -> None:
    command = programs.of_npm("opencode", "opencode")
    version = programs.version(command, tmp_path / "version")
    model, recorder = agents_stage.models["Coder"], agents_stage.recorder
    agent = programs.made(command, tmp_path / "run", {})
    told = configuration(agents_stage.base_url, model.family.model)
    (agent.project / "opencode.json").write_text(json.dumps(told))
    notes = agent.project / "notes.txt"
    notes.write_text(_SECRET)
    recorder.director = script = Script(
        model,
        [
            "I will look.\n" + call_text("Coder", ("read", {"filePath": str(notes)})),
            "It is on the 9th of May.",
            "In spring.",
        ],
    )
    assert "It is on the 9th of May." in agent.run("run", "When is the launch? It is in notes.txt.")
    assert "In spring." in agent.run("run", "--continue", "Which season is that?")
    assert script.num_left == 0
    exchanges = recorder.take()
    print([(each.status, each.session, len(each.body.get("tools", []))) for each in exchanges])
    assert {each.status for each in exchanges} == {200}
    talk = [each for each in exchanges if has_tools(each.body)]
    assert len(talk) == 3
    assert _SECRET in str(talk[1].body["messages"][-1]), "what the tool that was called has read"
    assert len(talk[0].body["tools"]) >= _MIN_TOOLS
    found = outcome(talk)
    results.add(f"opencode {version}", "/v1/chat/completions", talk[0], found)
    assert (found.num_turns, found.reasons) == (2, {})
    assert len({each.session["id"] for each in talk}) == 1
