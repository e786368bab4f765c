"""The lines of docs/clients.md do what they say: each block that names where it runs is run there, as it stands."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.results import PAGE
from tests.agents.script import Script
from tests.clients.environments import folder
from tests.loops.stage import Stage

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
_URL, _MODEL = "http://127.0.0.1:8000", "my-model"
_SAID = "Hello from Kakeya."
_BLOCK = re.compile(
    r"<!-- run: (?P<client>[\w-]+)(?:, says (?P<says>.+?))? -->\n```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_NUM_BLOCKS = 16


@dataclass(frozen=True)
class Block:
    """Lines of the page.

    Attributes:
        client: where they run, in build/clients.
        says: what the model answers.
    """

    client: str
    says: str
    language: str
    code: str


BLOCKS = [
    Block(found["client"], found["says"] or _SAID, found["language"], found["code"])
    for found in _BLOCK.finditer(PAGE.read_text())
]


def test_blocks_are_found() -> None:
    assert len(BLOCKS) >= _NUM_BLOCKS


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.client}-{block.language}")
def test_lines_of_the_page(agents_stage: Stage, tmp_path: Path, block: Block) -> None:
    model, recorder = agents_stage.models["Coder"], agents_stage.recorder
    recorder.director = Script(model, [block.says] * 9, lambda _: True)
    code = block.code.replace(_URL, f"http://{recorder.address}").replace(_MODEL, model.family.model)
    printed = run(block, code, tmp_path / "run")
    assert block.says in printed or block.says in printed.replace("'", '"')
    exchanges = recorder.take()
    assert exchanges
    assert {each.status for each in exchanges} == {200}


def run(block: Block, code: str, directory: Path) -> str:
    """What the lines print."""
    installed = folder(block.client, ".")
    if block.language == "python":
        return programs.made([str(installed / "bin/python"), "-c"], directory, {}).run(code)
    if block.language == "js":
        program = programs.made(["node", "program.mjs"], directory, {})
        (program.project / "program.mjs").write_text(code)
        (program.project / "node_modules").symlink_to(installed / "node_modules")
        return program.run()
    path = f"{installed / 'bin'}:{installed / 'node_modules/.bin'}:{Path(str(shutil.which('bash'))).parent}"
    path += f":{Path(str(shutil.which('node'))).parent}:/usr/bin:/bin"
    lines = [line.removeprefix("$ ").removeprefix("> ") for line in code.splitlines()]
    return programs.made(["bash", "-euc"], directory, {"PATH": path}).run("\n".join(lines))
