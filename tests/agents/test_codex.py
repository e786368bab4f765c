"""Codex itself, on `/v1/responses`: it runs a command, answers, goes on in its session in its next run, compacts."""

from pathlib import Path

import httpx
import pytest

from tests.agents import programs
from tests.agents.results import Results
from tests.agents.script import Script, has_tools
from tests.loops.calls import call_text
from tests.loops.judging import outcome
from tests.loops.recorder import Exchange
from tests.loops.stage import Stage

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
_SECRET = "The launch is on the 9th of May."
_MIN_TOOLS, _MIN_LETTERS = 8, 20_000
"""What it sends before a word is said."""
_QUIETLY = ("--skip-git-repo-check", "--sandbox", "danger-full-access")
"""What it is to run reads a file; a sandbox of its own is not to be had everywhere."""
_NOTES = _SECRET + "".join(f"\nLine {number} says nothing of it." for number in range(600))
"""Thousands of tokens, all of which it reads."""
_SUMMARY = "The notes are read: the ninth of May it is."
_MAX_SAID = 100
"""Tokens of a short question, and of what the chat template writes around it."""


def configuration(base_url: str, model: str, **more: int) -> str:
    """As in docs/clients.md, with more settings."""
    provider = f'[model_providers.kakeya]\nname = "Kakeya"\nbase_url = "{base_url}"\nwire_api = "responses"\n'
    settings = "".join(f"{name} = {value}\n" for name, value in more.items())
    return f'model = "{model}"\nmodel_provider = "kakeya"\n{settings}\n{provider}'


def codex(directory: Path, notes: str) -> tuple[programs.Program, str]:
    """It, in a project with notes, and its version."""
    command = programs.of_npm("codex", "codex")
    agent = programs.made(command, directory / "run", {})
    (agent.home / ".codex").mkdir()
    (agent.project / "notes.txt").write_text(notes)
    return agent, programs.version(command, directory / "version")


def test_it_runs_a_command_and_goes_on(agents_stage: Stage, tmp_path: Path, results: Results) -> None:
    model, recorder = agents_stage.models["Coder"], agents_stage.recorder
    agent, version = codex(tmp_path, _SECRET)
    (agent.home / ".codex/config.toml").write_text(configuration(agents_stage.base_url, model.family.model))
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


def test_it_compacts_and_goes_on(agents_stage: Stage, tmp_path: Path, results: Results) -> None:
    model, recorder = agents_stage.models["Coder"], agents_stage.recorder
    agent, version = codex(tmp_path, _NOTES)
    settings = agent.home / ".codex/config.toml"
    settings.write_text(configuration(agents_stage.base_url, model.family.model))
    called = "I will look.\n" + call_text("Coder", ("exec_command", {"cmd": "cat notes.txt"}))
    texts = [called, "It is on the 9th of May.", _SUMMARY, "In spring.", "Mostly."]
    recorder.director = script = Script(model, texts, lambda _: True)
    agent.run("exec", *_QUIETLY, "When is the launch? It is in notes.txt.")
    asked, answered = recorder.take()
    between = (asked.num_prompt_tokens + answered.num_prompt_tokens) // 2
    assert between > asked.num_prompt_tokens + 10 * _MAX_SAID, "room for what is left of the conversation, and no more"
    limit = {"model_auto_compact_token_limit": between}
    settings.write_text(configuration(agents_stage.base_url, model.family.model, **limit))
    assert "In spring." in agent.run("exec", *_QUIETLY, "resume", "--last", "Which season is that?")
    assert "Mostly." in agent.run("exec", *_QUIETLY, "resume", "--last", "Is it warm then?")
    assert script.num_left == 0
    compaction, behind, later = exchanges = recorder.take()
    print([(each.status, each.refusal, each.session) for each in exchanges])
    assert {each.status for each in exchanges} == {200}
    assert not has_tools(compaction.body), "a request beside the conversation, for its summary"
    assert _SECRET in str(compaction.body["input"])
    assert _SUMMARY in str(behind.body["input"])
    assert _SECRET not in str(behind.body["input"]), "the summary stands for it"
    assert behind.num_reused >= asked.num_prompt_tokens - 10 * _MAX_SAID, "the head is not prefilled again"
    assert behind.num_prompt_tokens == anew(agents_stage, behind), "the session is that of the new history"
    assert (later.state, later.session["id"]) == ("continued", behind.session["id"])
    assert later.num_appended <= _MAX_SAID
    assert later.num_prompt_tokens == anew(agents_stage, later)
    recorder.take()
    results.add(f"Codex {version}, compacting", "/v1/responses", asked, outcome([asked, answered, *exchanges]))
    assert results.found[-1].num_continued == 2


def anew(stage: Stage, exchange: Exchange) -> int:
    """Tokens of its conversation in another session, which had no more of it than the head."""
    asked = {**exchange.body, "stream": False, "max_output_tokens": 1}
    response = httpx.post(f"{stage.base_url}/responses", json=asked, headers={"Kakeya-Session": "new"}, timeout=300)
    assert exchange.session["id"] not in response.headers["kakeya-session"]
    return int(response.json()["usage"]["input_tokens"])
