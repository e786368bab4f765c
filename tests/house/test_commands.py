"""The commands that documents show are there, with the flags that they show."""

import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from kakeya.cli.main import main
from tests.house.packages import ROOT
from tests.house.test_documents import HISTORY, documents

_CONSOLE = re.compile(r"^ *```console\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:sudo )?(?:kakeya|make) [^`\n]+)`")
_ENDS = {"|", "&&", "||", ";", ">", ">>", "2>&1", "#"}
_SERVICE_VERB = "install-service"
_OTHERS = ("bench",)  # it is a menu itself, and its own tests hold its flags


def lines(text: str) -> Iterator[str]:
    """Command lines of the blocks that show a terminal, and of `kakeya ...` and `make ...` in sentences."""
    for block in _CONSOLE.findall(text):
        joined = re.sub(r"\\\n *", " ", block)
        yield from (line.strip()[2:] for line in joined.splitlines() if line.strip().startswith("$ "))
    yield from _INLINE.findall(re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL))


def commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a line that is ours: behind variables, sudo and what leads to a folder."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a sentence
        return
    part: list[str] = []
    for word in [*words, ";"]:
        if word in _ENDS:
            while part and (part[0] in ("sudo", "nohup", "exec") or re.fullmatch(r"[A-Z_]+=.*", part[0])):
                part.pop(0)
            if part and part[0].rpartition("/")[2] in ("kakeya", "make"):
                yield [part[0].rpartition("/")[2], *part[1:]]
            part = []
        else:
            part.append(word)


@cache
def help_of(words: tuple[str, ...]) -> str:
    """What `kakeya WORDS --help` prints; "" where there is no such command."""
    out = io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(io.StringIO()):
            status: object = main([*words, "--help"])
    except SystemExit as ended:
        status = ended.code
    return "" if status else out.getvalue()


def faults(words: list[str]) -> Iterator[str]:
    program, *rest = words
    if program == "make":
        targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        yield from (word for word in rest if re.fullmatch(r"[a-z][a-z0-9-]+", word) and word not in targets)
        return
    if not rest or rest[0].startswith("-") or not re.fullmatch(r"[a-z-]+", rest[0]) or rest[0] in _OTHERS:
        return
    command, verbs = rest[0], [word for word in rest[1:2] if re.fullmatch(r"[a-z-]+", word)]
    with_verb = help_of((command, *verbs))
    said = with_verb if f"kakeya {command} {''.join(verbs)}".strip() in with_verb else help_of((command,))
    if _SERVICE_VERB in verbs:
        said += help_of((command,))
    if not said:
        yield f"kakeya {command}"
    for word in rest[1:]:
        flag = word.partition("=")[0].rstrip(".,;:)")
        if re.fullmatch(r"--[a-z][a-z-]+", flag) and not re.search(rf"{flag}\b(?!-)", said):
            yield f"kakeya {command} {flag}"


DOCUMENTS = [each for each in documents() if each.name != HISTORY]


@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(each.relative_to(ROOT)) for each in DOCUMENTS])
def test_what_a_document_has_one_type_is_there(document: Path) -> None:
    found = [fault for line in lines(document.read_text()) for words in commands(line) for fault in faults(words)]
    assert found == []


def test_what_is_not_there_is_found() -> None:
    shown = "$ sudo X=1 kakeya nonesuch | kakeya up --workers 2 \\\n    --none 1\n"
    text = f"A `kakeya worker --nonesuch` and `make nonesuch`.\n```console\n{shown}```\n"
    found = [fault for line in lines(text) for words in commands(line) for fault in faults(words)]
    assert found == ["kakeya nonesuch", "kakeya up --none", "kakeya worker --nonesuch", "nonesuch"]
