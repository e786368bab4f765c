"""Drivers of clients, each a process of its own, and what comes of the conversations that they hold."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.clients.environments import folder, program
from tests.integration.processes import LONG_SECONDS
from tests.loops import played_verifier
from tests.loops.families import FamilyModel
from tests.loops.recorder import Exchange
from tests.loops.stage import Stage

ROOT = Path(__file__).resolve().parents[2]
_DRIVERS = "tests.loops.drivers"
_AI_SDK = "ai-sdk"
_LOOP = "loop.mjs"


@dataclass(frozen=True)
class Client:
    """One that people have.

    Attributes:
        name: for people.
        driver: its module; "" of the one that node runs.
    """

    name: str
    driver: str

    def command(self) -> tuple[list[str], Path]:
        """What starts its driver where it is installed, and where; the test fails where it is not."""
        if self.driver:
            return [program("loops", "python"), "-m", f"{_DRIVERS}.{self.driver}"], ROOT
        installed = folder(_AI_SDK, "node_modules").parent
        shutil.copy(ROOT / "tests/loops/drivers/ai_sdk" / _LOOP, installed)
        return ["node", _LOOP], installed


CLIENTS = (
    Client("openai-python", "openai_plain"),
    Client("openai-agents", "agents_sdk"),
    Client("LangChain `ChatOpenAI`", "langchain_chat"),
    Client("pydantic-ai", "pydantic_agent"),
    Client("Vercel AI SDK", ""),
)
HERE = [sys.executable, "-m", f"{_DRIVERS}.openai_plain"]
"""The driver of what is installed where the tests run."""


@dataclass(frozen=True)
class Held:
    """A conversation that was held.

    Attributes:
        answers: as the client has them.
        error: what the client raised in the end; "" for nothing.
        exchanges: its requests.
    """

    answers: list[str]
    error: str
    exchanges: list[Exchange]


class Driver:
    """A client that is there. Use `driver` to make one.

    Attributes:
        client: the distribution that is driven.
        version: of it.
    """

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process, self._log = process, log
        said = self._read()
        self.client, self.version = str(said["client"]), str(said["version"])

    def hold(
        self,
        stage: Stage,
        model: FamilyModel,
        questions: Sequence[str],
        answers: Sequence[Sequence[int]],
        *,
        max_tokens: int,
        streams: bool,
        system: str = "",
        stop: Sequence[str] = (),
    ) -> Held:
        """Has a conversation held in which the model says these tokens, one answer after the other."""
        played_verifier.play(model.folder, answers)
        stage.recorder.take()
        talk = {
            "base_url": stage.base_url,
            "model": model.family.model,
            "system": system,
            "questions": list(questions),
            "max_tokens": max_tokens,
            "streams": streams,
            "stop": list(stop),
        }
        print(json.dumps(talk), file=self._stdin, flush=True)
        said = self._read()
        return Held(said["answers"], said["error"], stage.recorder.take())

    @property
    def _stdin(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the driver is gone: {self._log.read_text()[-4000:]}"
        said: dict[str, Any] = json.loads(line)
        return said


@contextmanager
def driver(command: Sequence[str], directory: Path, log: Path) -> Iterator[Driver]:
    """A driver's process, stopped at the end.

    Args:
        directory: in which it is started.
        log: of what it says beside.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True
        )
    with process:
        try:
            yield Driver(process, log)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(LONG_SECONDS)
        finally:
            process.kill()
