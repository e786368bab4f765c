"""The Lua scripts, and what their headers say of them.

A line `-- key NAME, NAME...: explanation` of a header names KEYS in their order, `-- arg` does so for ARGV, and `-- out
NAME {what comes with it}: explanation` for outcomes. Three dots: as many as there are. `-- of a session` stands for the
names in prelude.lua, which come first. In Lua they are `key.NAME` and `arg.NAME`; Python gives arguments by name.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

_HEADER = re.compile(r"^-- (?:key|arg|out) .*$", re.MULTILINE)
_LINE = re.compile(r"-- (key|arg|out) (\w+(?:, \w+)*(?:\.\.\.)?)(?: \{.+?\})?(?::.*)?")
_OF_A_SESSION = "\n-- of a session"
# `unpack` would not hold thousands.
_REST = "local function rest(all, i) local t = {} while all[i] do t[#t + 1], i = all[i], i + 1 end return t end\n"


@dataclass(frozen=True, slots=True)
class Script:
    """One script.

    Attributes:
        text: for Redis: what names its keys and arguments, the prelude, itself.
        arguments: their names; `rest` is that of all which come after these; empty: none do.
        outcomes: that it answers with; none: it answers with something else.
    """

    name: str
    text: str
    arguments: tuple[str, ...]
    rest: str
    outcomes: tuple[str, ...]


@functools.cache
def scripts() -> Mapping[str, Script]:
    """All of them, by name."""
    folder = resources.files("kakeya_router.store").joinpath("lua")
    prelude = folder.joinpath("prelude.lua").read_text("utf-8")
    files = [file for room in folder.iterdir() if room.is_dir() for file in room.iterdir()]
    found = [read(file.name.removesuffix(".lua"), prelude, file.read_text("utf-8")) for file in files]
    return {script.name: script for script in sorted(found, key=lambda script: script.name)}


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
    return Script(name, _REST + tables + prelude + text, tuple(arguments), rest, tuple(named["out"]))


def _table(source: str, names: Sequence[str]) -> str:
    """Lua's, by name."""
    values = [
        f"{name[:-3]} = rest({source}, {number})" if name.endswith("...") else f"{name} = {source}[{number}]"
        for number, name in enumerate(names, 1)
    ]
    return f"{{{', '.join(values)}}}"
