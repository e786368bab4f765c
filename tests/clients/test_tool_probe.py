"""canitoolcall's probe of a server: its scenarios, whole and streamed, with answers that a test has written."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import program
from tests.loops import played_verifier
from tests.loops.calls import TOOL_PARSERS, call_text, call_tokens, forced_call_text
from tests.loops.families import FAMILIES, XML, FamilyModel
from tests.loops.stage import Stage, stage

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

_WINDOW = 4096
_FAMILIES = [*(family for family in FAMILIES if family.name in ("Qwen3", "Llama 3.1", "Mistral")), XML]
"""One of each family of syntax."""
_NOTE = {"title": "Grüße aus Zürich", "body": "Café ☕ in 東京 — naïve résumé 🚀"}
_EVENT = {
    "title": "Design review",
    "start": "2026-10-01T15:00:00Z",
    "attendees": [{"name": "Ana", "email": "ana@example.com"}, {"name": "Bo", "email": "bo@example.com"}],
    "location": {"city": "Berlin", "room": "4.12"},
}
_CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "single-call": [("get_weather", {"city": "Paris"})],
    "parallel-calls": [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Tokyo"})],
    "no-call": [],
    "nested-args": [("create_event", _EVENT)],
    "unicode-args": [("save_note", _NOTE)],
    "empty-args": [("get_server_time", {})],
    "forced-tool-choice": [("get_weather", {"city": "Lisbon"})],
    "tool-result-followup": [],
    "reasoning-then-call": [("record_answer", {"answer": "9.9"})],
}
"""What is called in each scenario, in the probe's order."""
_FORCED = "forced-tool-choice"


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("stage"), _FAMILIES, _WINDOW, *TOOL_PARSERS) as made:
        yield made


def written(model: FamilyModel, scenario: str) -> str:
    """What the model says in a scenario: its own way of writing, or the grammar's where a call is forced."""
    thought = "<think>\nHm.\n</think>" if model.family.thinks else ""
    calls = _CALLS[scenario]
    if scenario == _FORCED:  # the grammar begins right behind the thought
        return thought + forced_call_text(model.family.name, *calls[0])
    space = "\n\n" if thought else ""
    return thought + space + (call_text(model.family.name, *calls) if calls else "42, and clear.")


@pytest.mark.parametrize("name", [family.name for family in _FAMILIES])
def test_every_scenario_passes(probed: Stage, tmp_path: Path, name: str) -> None:
    model = probed.models[name]
    texts = [written(model, scenario) for scenario in _CALLS]
    played_verifier.play(model.folder, [call_tokens(model, text) for text in texts for _ in ("whole", "streamed")])
    report = tmp_path / "report.json"
    command = [program("canitoolcall", "canitoolcall"), "probe", "--base-url", probed.base_url]
    command += ["--model", model.family.model, "--concurrency", "1", "--json", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    print(done.stdout, done.stderr)
    outcomes = json.loads(report.read_text())["outcomes"]
    judged = {(each["scenario_id"], each["check"], each["stream"]): each for each in outcomes}
    assert len(judged) == 3 * len(_CALLS)
    for outcome in judged.values():
        assert (outcome["status"], outcome["warnings"]) == ("pass", []), outcome
        if observed := outcome["observed"]:
            assert bool(observed["reasoning_content"]) == model.family.thinks
            called = [(call["name"], json.loads(call["arguments_raw"])) for call in observed["tool_calls"]]
            assert called == _CALLS[outcome["scenario_id"]]
