"""aider: it edits a file as the model's answer says."""

from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.results import Results
from tests.agents.script import Script
from tests.loops.judging import outcome
from tests.loops.stage import Stage

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
_BEFORE = "def greet():\n    return 'Hello'\n"
_EDIT = """I change it.

greet.py
```python
<<<<<<< SEARCH
    return '{old}'
=======
    return '{new}'
>>>>>>> REPLACE
```
"""


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streams"])
def test_it_edits_a_file(agents_stage: Stage, tmp_path: Path, results: Results, streams: bool) -> None:
    command = programs.of_pypi("aider", "aider")
    version = programs.version(command, tmp_path / "version")
    model, recorder = agents_stage.models["Coder"], agents_stage.recorder
    variables = {"OPENAI_API_BASE": agents_stage.base_url, "OPENAI_API_KEY": "none"}
    agent = programs.made(command, tmp_path / "run", variables)
    file = agent.project / "greet.py"
    file.write_text(_BEFORE)
    edits = [_EDIT.format(old="Hello", new="Ciao"), _EDIT.format(old="Ciao", new="Grüezi")]
    recorder.director = script = Script(model, edits, lambda _: True)
    told = ["--model", f"openai/{model.family.model}", "--edit-format", "diff", "--no-git", "--yes-always"]
    told += ["--no-show-model-warnings", "--stream" if streams else "--no-stream"]
    agent.run(*told, "--message", f"{streams}: say Ciao.", "greet.py")
    assert file.read_text() == _BEFORE.replace("Hello", "Ciao")
    agent.run(*told, "--restore-chat-history", "--message", "Say Grüezi.", "greet.py")
    assert file.read_text() == _BEFORE.replace("Hello", "Grüezi")
    assert script.num_left == 0
    exchanges = recorder.take()
    print([(each.status, each.session) for each in exchanges])
    assert {each.status for each in exchanges} == {200}
    assert all(bool(each.body.get("stream")) == streams for each in exchanges)
    results.add(f"aider {version}", "/v1/chat/completions", exchanges[0], outcome(exchanges))
