"""Codex itself, on `/v1/responses`: it runs a command, answers, and goes on in its session in its next run."""

from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.results import Results
from tests.agents.script import Script, has_tools
from tests.loops.calls import call_text
from tests.loops.judging import outcome
from tests.loops.stage import Stage

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
_SECRET = "The launch is on the 9th of May."
_MIN_TOOLS, _MIN_LETTERS = 8, 20_000
"""What it sends before a word is said."""
_QUIETLY = ("--skip-git-repo-check", "--sandbox", "danger-full-access")
"""What it is to run reads a file; a sandbox of its own is not to be had everywhere."""


def configuration(base_url: str, model: str) -> str:
    """As in docs/clients.md."""
    provider = f'[model_providers.kakeya]\nname = "Kakeya"\nbase_url = "{base_url}"\nwire_api = "responses"\n'
    return f'model = "{model}"\nmodel_provider = "kakeya"\n\n{provider}'


def test_it_runs_a_command_and_goes_on(agents_stage: Stage, tmp_path: Path, results: Results) -> None:
    command = programs.of_npm("codex", "codex")
    version = programs.version(command, tmp_path / "version")
    model, recorder = agents_stage.models["Coder"], agents_stage.recorder
    agent = programs.made(command, tmp_path / "run", {})
    (agent.home / ".codex").mkdir()
    (agent.home / ".codex/config.toml").write_text(configuration(agents_stage.base_url, model.family.model))
    (agent.project / "notes.txt").write_text(_SECRET)
    recorder.director = script = Script(
        model,
        [
            "I will look.\n" + call_text("Coder", ("exec_command", {"cmd": "cat notes.txt"})),
            "It is on the 9th of May.",
            "In spring.",
        ],
    )
    assert "It is on the 9th of May." in agent.run("exec", *_QUIETLY, "When is the launch? It is in notes.txt.")
    assert "In spring." in agent.run("exec", *_QUIETLY, "resume", "--last", "Which season is that?")
    assert script.num_left == 0
    exchanges = recorder.take()
    print([(each.status, each.refusal, each.session, len(each.body.get("tools", []))) for each in exchanges])
    assert {each.status for each in exchanges} == {200}
    talk = [each for each in exchanges if has_tools(each.body)]
    assert len(talk) == 3
    assert _SECRET in str(talk[1].body["input"][-1]), "what the command that was called has read"
    found = outcome(talk)
    results.add(f"Codex {version}", "/v1/responses", talk[0], found)
    assert results.found[-1].num_tools >= _MIN_TOOLS
    assert results.found[-1].num_letters >= _MIN_LETTERS
    assert (found.num_turns, found.reasons) == (2, {})
    assert len({each.session["id"] for each in talk}) == 1
