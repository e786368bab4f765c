"""The Lua scripts, and what their headers say of them.

A line `-- key NAME, NAME...: explanation` of a header names KEYS in their order, `-- arg` does so for ARGV, and `-- out
NAME {what comes with it}: explanation` for outcomes. Three dots: as many as there are. `-- of a session` stands for the
names in prelude/session.lua, which come first. In Lua they are `key.NAME` and `arg.NAME`; Python gives arguments by
name.

A script runs alone, or for several calls at once, of which each has its own `key` and `arg`.

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
_REST = "local function rest(all, i, n) local t = {} while i <= n do t[#t + 1], i = all[i], i + 1 end return t end\n"
# Of each call ARGV has the number of its keys, that of its arguments, and these. Where one fails, all of them do, and
# what those before it have written stays.
_RUN_ALL = """local answers, k, a = {}, 0, 0
while ARGV[a + 1] do
  local last_key, last_arg = k + ARGV[a + 1], a + 2 + ARGV[a + 2]
  a = a + 2
  key, arg = %s, %s
  answers[#answers + 1] = run()
  k, a = last_key, last_arg
end
return answers
"""

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
        together: the same for several calls. It answers with a list of their answers.
        arguments: their names; `rest` is that of all which come after these; empty: none do.
        outcomes: that it answers with; none: it answers with something else.
    """

    name: str
    text: "Text"
    together: "Text"
    arguments: tuple[str, ...]
    rest: str
    outcomes: tuple[str, ...]


class Text(str):
    """Of a script, as Redis gets it."""

    @functools.cached_property
    def sha(self) -> str:
        """By which Redis knows it."""
        return hashlib.sha1(self.encode(), usedforsecurity=False).hexdigest()


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
    keys, args = named["key"], named["arg"]
    tables = f"local key, arg = {_table('KEYS', keys, '', '#KEYS')}, {_table('ARGV', args, '', '#ARGV')}\n"
    alone = Text(_REST + tables + _linked(prelude, text))
    each = _linked(prelude, f"local function run()\n{text}\nend\n")
    run_all = _RUN_ALL % (_table("KEYS", keys, "k + ", "last_key"), _table("ARGV", args, "a + ", "last_arg"))
    together = Text(f"{_REST}local key, arg\n{each}{run_all}")
    rest = "".join(each[:-3] for each in named["arg"] if each.endswith("..."))
    arguments = named["arg"][:-1] if rest else named["arg"]
    return Script(name, alone, together, tuple(arguments), rest, tuple(named["out"]))


def _linked(prelude: str, text: str) -> str:
    """A text behind those parts of the prelude that it uses, and that these use."""
    words = _words(text)
    for part in reversed(prelude.split("\n\n")):
        if not words.isdisjoint(_DEFINED.findall(part)):
            text, words = f"{part}\n{text}", words | _words(part)
    return text


def _words(text: str) -> set[str]:
    return set(_WORD.findall(_COMMENT.sub("", text)))


def _table(source: str, names: Sequence[str], before: str, last: str) -> str:
    """Lua's, by name, of the values that come behind `before`, up to the one at `last`."""
    values = [
        f"{name[:-3]} = rest({source}, {before}{number}, {last})"
        if name.endswith("...")
        else f"{name} = {source}[{before}{number}]"
        for number, name in enumerate(names, 1)
    ]
    return f"{{{', '.join(values)}}}"
