"""The way of one call through our files, as a profile function sees it.

Counted is each function of ours that begins: a call, or the first run of a coroutine or generator. That one goes on
after a wait is not counted, since how often it waits is chance, and neither are comprehensions, which are part of the
function that they stand in.
"""

import ast
import asyncio
import dis
import importlib.util
import sys
import threading
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGES = ("kakeya", "kakeya_shared", "kakeya_router", "kakeya_worker")
"""Stubs are generated, and the worker's kernel is C++: neither is anybody's reading."""

_RUNS_LATER = CO_COROUTINE | CO_GENERATOR | CO_ASYNC_GENERATOR
_QUIET_SECONDS = 0.2
_LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Step:
    """A function that begins.

    Attributes:
        file: from its package on, such as kakeya_router/program.py.
        function: with its class.
        strand: the task that it runs in, or the thread outside of tasks.
    """

    file: str
    function: str
    strand: object


@dataclass(frozen=True)
class Way:
    """All steps of a call, in the order in which they began."""

    steps: tuple[Step, ...]

    @property
    def files(self) -> list[str]:
        """In order of first entry."""
        return list(dict.fromkeys(step.file for step in self.steps))

    @property
    def router_files(self) -> list[str]:
        return [file for file in self.files if _is_router(file)]

    @property
    def num_returns(self) -> int:
        """How often the way comes to a file of the router from another file of ours.

        That is a step in one after a step, in the same strand, in another: how tasks and threads alternate is chance,
        and no turn of the way. A strand's first step counts.
        """
        strands = {step.strand for step in self.steps}
        ways = ([step.file for step in self.steps if step.strand == strand] for strand in strands)
        return sum(_is_router(file) and file != before for way in ways for before, file in pairwise(["", *way]))

    def functions(self, file: str) -> list[str]:
        """That began in a file, in order of first entry."""
        return list(dict.fromkeys(step.function for step in self.steps if step.file == file))

    def figures(self) -> dict[str, int]:
        """The three that are held under a ceiling."""
        return {
            "files": len(self.files),
            "router_files": len(self.router_files),
            "router_returns": self.num_returns,
        }


class Watch:
    """Sees what begins in our files: in the thread that makes it, and in those that start while it is `watching`.

    What runs in a task of `background` is not seen.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._steps: list[Step] = []
        self._last_step = 0.0  # monotonic seconds
        self.background: Set[asyncio.Task[Any]] = frozenset()

    @contextmanager
    def watching(self) -> Iterator[None]:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    async def quiet(self) -> None:
        """Waits until nothing of ours has begun for a moment."""
        self._last_step = time.monotonic()
        while time.monotonic() - self._last_step < _QUIET_SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)

    def take(self) -> Way:
        """What was seen since the last time."""
        seen, self._steps = self._steps, []
        return Way(tuple(seen))

    def _see(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or (step := _step(frame.f_code)) is None:
            return
        first, last = step.begins
        if not first <= frame.f_lasti <= last:
            return
        thread = threading.get_ident()
        task = asyncio.current_task(self._loop) if thread == self._home else None
        if task in self.background:
            return
        self._last_step = time.monotonic()
        self._steps.append(Step(step.file, step.function, task or thread))


@dataclass(frozen=True)
class _Code:
    """A function of ours; `begins`: the range of the instructions behind which its frame stands when it begins."""

    file: str
    function: str
    begins: tuple[int, int]


@cache
def _step(code: CodeType) -> _Code | None:
    """None where it is not counted."""
    file = _own(code.co_filename)
    if file is None or code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"):
        return None
    return _Code(file, code.co_qualname, _begins(code))


def _begins(code: CodeType) -> tuple[int, int]:
    if not code.co_flags & _RUNS_LATER:
        return -sys.maxsize, sys.maxsize
    offsets: dict[str, int] = {}
    for instruction in dis.get_instructions(code):
        offsets.setdefault(instruction.opname, instruction.offset)
    return offsets["RETURN_GENERATOR"], offsets["RESUME"]


@cache
def _own(filename: str) -> str | None:
    """The file from its package on; None: it is not ours."""
    path = Path(filename)
    for folder in _folders():
        if path.is_relative_to(folder):
            return str(path.relative_to(folder.parent))
    return None


@cache
def _folders() -> list[Path]:
    specs = [importlib.util.find_spec(package) for package in PACKAGES]
    return [Path(place) for spec in specs if spec for place in spec.submodule_search_locations or ()]


def _is_router(file: str) -> bool:
    return file.startswith("kakeya_router/")


def purpose(file: str) -> str:
    """The first line of the docstring of a file of ours."""
    path = next(folder.parent / file for folder in _folders() if (folder.parent / file).is_file())
    text = ast.get_docstring(ast.parse(path.read_text()))
    return text.splitlines()[0] if text else ""
