"""Claude Code itself, on `/v1/messages`: it looks for a tool, reads a file, answers, and goes on in its session."""

import json
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.results import Results
from tests.agents.script import Script, has_tools
from tests.loops.calls import call_text
from tests.loops.families import CODER
from tests.loops.judging import outcome
from tests.loops.stage import Stage

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
_SECRET = "The launch is on the 9th of May."
_MIN_TOOLS, _MIN_LETTERS = 10, 30_000
"""What it sends before a word is said."""


_BY_NAME = {"ANTHROPIC_MODEL": CODER.model, "ANTHROPIC_DEFAULT_HAIKU_MODEL": CODER.model}
MODELS: dict[str, dict[str, str]] = {"as Claude": {}, "by its name": _BY_NAME}
"""What it is told of its model; nothing where the server answers to the names of Anthropic's."""


@pytest.mark.parametrize("named", MODELS)
def test_it_reads_a_file_and_goes_on(agents_stage: Stage, tmp_path: Path, results: Results, named: str) -> None:
    command = programs.of_npm("claude-code", "claude")
    version = programs.version(command, tmp_path / "version")
    recorder = agents_stage.recorder
    url = agents_stage.base_url.removesuffix("/v1")
    variables = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", **MODELS[named]}
    agent = programs.made(command, tmp_path / "run", variables)
    notes = agent.project / "notes.txt"
    notes.write_text(_SECRET)
    texts = [
        call_text("Coder", ("ToolSearch", {"query": "select:WebFetch", "max_results": 5})),
        "I will look.\n" + call_text("Coder", ("Read", {"file_path": str(notes)})),
        "It is on the 9th of May.",
        "In spring.",
    ]
    recorder.director = script = Script(agents_stage.models["Coder"], texts)
    first = json.loads(agent.run("-p", "When is the launch? It is in notes.txt.", "--output-format", "json"))
    assert (first["is_error"], first["result"]) == (False, "It is on the 9th of May.")
    second = json.loads(agent.run("-p", "--continue", "Which season is that?", "--output-format", "json"))
    assert (second["is_error"], second["result"]) == (False, "In spring.")
    assert script.num_left == 0
    asked, exchanges = recorder.asked(), recorder.take()
    print(asked, [(each.status, each.session, len(each.body.get("tools", []))) for each in exchanges])
    assert {each.status for each in exchanges} == {200}
    assert set(asked) <= {"HEAD /", "POST /v1/messages?beta=true", "POST /v1/messages/count_tokens?beta=true"}
    talk = [each for each in exchanges if has_tools(each.body)]
    assert len(talk) == len(texts)
    assert "tool_reference" in str(talk[1].body["messages"][-1]), "a tool that was deferred is there now"
    assert _SECRET in str(talk[2].body["messages"][-1]), "what the tool that was called has read"
    found = outcome(talk)
    results.add(f"Claude Code {version}", "/v1/messages", talk[1], found)
    assert results.found[-1].num_tools >= _MIN_TOOLS
    assert results.found[-1].num_letters >= _MIN_LETTERS
    assert (found.num_turns, found.reasons) == (len(texts) - 1, {})
    assert len({each.session["id"] for each in talk}) == 1
