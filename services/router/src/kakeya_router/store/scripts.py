"""The Lua scripts, and what their headers say of them.

A line `-- key NAME, NAME...: explanation` of a header names KEYS in their order, `-- arg` does so for ARGV, and `-- out
NAME {what comes with it}: explanation` for outcomes. Three dots: as many as there are. `-- of a session` stands for the
names in prelude/session.lua, which come first. In Lua they are `key.NAME` and `arg.NAME`; Python gives arguments by
name.

Before each script stand those parts of the prelude that it uses: Redis runs all of its text at each call. A part is a
function or a constant with its comment; an empty line ends it.
"""

import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources

_HEADER = re.compile(r"^-- (?:key|arg|out) .*$", re.MULTILINE)
_LINE = re.compile(r"-- (key|arg|out) (\w+(?:, \w+)*(?:\.\.\.)?)(?: \{.+?\})?(?::.*)?")
_OF_A_SESSION = "\n-- of a session"
# `unpack` would not hold thousands.
_REST = "local function rest(all, i) local t = {} while all[i] do t[#t + 1], i = all[i], i + 1 end return t end\n"

# In this order: one uses the ones before.
_PRELUDE = ("common", "objects", "tags", "journal", "ledger", "queue", "session")
_DEFINED = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)
_COMMENT = re.compile(r"--.*")
# Not one in quotes, such as the kind 'park' of an operation.
_WORD = re.compile(r"(?<!['\w])\w+")


@dataclass(frozen=True)
class Script:
    """One script.

    Attributes:
        text: for Redis: what names its keys and arguments, what it uses of the prelude, itself.
        arguments: their names; `rest` is that of all which come after these; empty: none do.
        outcomes: that it answers with; none: it answers with something else.
    """

    name: str
    text: str
    arguments: tuple[str, ...]
    rest: str
    outcomes: tuple[str, ...]

    @functools.cached_property
    def sha(self) -> str:
        """By which Redis knows its text."""
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


@functools.cache
def scripts() -> Mapping[str, Script]:
    """All of them, by name."""
    folder = resources.files("kakeya_router.store").joinpath("lua")
    prelude = "\n".join(folder.joinpath("prelude", f"{name}.lua").read_text("utf-8") for name in _PRELUDE)
    files = [file for room in folder.iterdir() if room.name != "prelude" for file in room.iterdir()]
    found = [read(file.name.removesuffix(".lua"), prelude, file.read_text("utf-8")) for file in files]
    return {script.name: script for script in sorted(found, key=lambda script: script.name)}


@functools.cache
def script_of(outcomes: type[StrEnum]) -> str:
    """The name of the script that answers with these: of `BeginOperation` it is begin_operation."""
    return re.sub(r"\B([A-Z])", r"_\1", outcomes.__name__).lower()


def read(name: str, prelude: str, text: str) -> Script:
    """Raises ValueError: a line of the header is not as it has to be."""
    named: dict[str, list[str]] = {"key": [], "arg": [], "out": []}
    for line in _HEADER.findall(prelude + text if _OF_A_SESSION in text else text):
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"{name}.lua: {line}")
        named[found[1]] += found[2].split(", ")
    tables = f"local key, arg = {_table('KEYS', named['key'])}, {_table('ARGV', named['arg'])}\n"
    rest = "".join(each[:-3] for each in named["arg"] if each.endswith("..."))
    arguments = named["arg"][:-1] if rest else named["arg"]
    return Script(name, _REST + tables + _linked(prelude, text), tuple(arguments), rest, tuple(named["out"]))


def _linked(prelude: str, text: str) -> str:
    """A text behind those parts of the prelude that it uses, and that these use."""
    words = _words(text)
    for part in reversed(prelude.split("\n\n")):
        if not words.isdisjoint(_DEFINED.findall(part)):
            text, words = f"{part}\n{text}", words | _words(part)
    return text


def _words(text: str) -> set[str]:
    return set(_WORD.findall(_COMMENT.sub("", text)))


def _table(source: str, names: Sequence[str]) -> str:
    """Lua's, by name."""
    values = [
        f"{name[:-3]} = rest({source}, {number})" if name.endswith("...") else f"{name} = {source}[{number}]"
        for number, name in enumerate(names, 1)
    ]
    return f"{{{', '.join(values)}}}"
