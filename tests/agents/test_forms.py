"""What asks for an answer of a class gets its object, whole and streamed; a grammar has held the model to it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agents.clients import INSTRUCTOR, PARSE, Framework
from tests.loops.calls import call_tokens, forced_call_text
from tests.loops.families import FamilyModel
from tests.loops.stage import Stage
from tests.loops.talking import Held, driver

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
_JULIA = {"name": "Julia", "age": 30}
_JSON = '{"name": "Julia", "age": 30}'
_FENCED = f"```json\n{_JSON}\n```"
_MAX_TOKENS = 400


def held(
    framework: Framework, stage: Stage, model: FamilyModel, texts: Sequence[str], *, streams: bool, log: Path
) -> Held:
    """What comes of as many questions as there are answers."""
    command, directory = framework.command()
    thought = "<think>\nHm.\n</think>" if model.family.thinks else ""
    said = [call_tokens(model, thought + text) for text in texts]
    with driver(command, directory, log) as talker:
        print(talker.client, talker.version)
        asked = [f"{streams} {number}: who is thirty?" for number in range(len(texts))]
        return talker.hold(stage, model, asked, said, max_tokens=_MAX_TOKENS, streams=streams)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
@pytest.mark.parametrize("name", ["Coder", "Qwen3"])
def test_instructor(agents_stage: Stage, tmp_path: Path, name: str, streams: bool) -> None:
    model = agents_stage.models[name]
    tool = "PartialPerson" if streams else "Person"
    texts = [forced_call_text(name, tool, _JULIA), _JSON, _JSON, _FENCED]
    found = held(INSTRUCTOR, agents_stage, model, texts, streams=streams, log=tmp_path / "log")
    assert not found.error
    assert found.answers == [f"{mode} Julia 30" for mode in ("TOOLS", "JSON_SCHEMA", "JSON", "MD_JSON")]
    bodies = [each.body for each in found.exchanges]
    assert bodies[0]["tool_choice"] == {"type": "function", "function": {"name": tool}}
    assert [body.get("response_format", {}).get("type") for body in bodies[1:3]] == ["json_schema", "json_object"]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
@pytest.mark.parametrize("name", ["Coder", "Qwen3"])
def test_parse_of_openai(agents_stage: Stage, tmp_path: Path, name: str, streams: bool) -> None:
    model = agents_stage.models[name]
    texts = [_JSON, forced_call_text(name, "Person", _JULIA)]
    found = held(PARSE, agents_stage, model, texts, streams=streams, log=tmp_path / "log")
    assert not found.error
    assert found.answers == ["Julia 30"] * 2
    assert found.exchanges[0].body["response_format"]["type"] == "json_schema"
    assert found.exchanges[1].body["tool_choice"] == "required"
