"""Arguments that are written without a notation: texts as they are, all else as JSON.

What such a text means says the tool's schema (`kakeya_http_shim.tools.argument_types`): where the argument may also be
something else, it is that if it is JSON of that kind. So the texts that are allowed are those that mean what the schema
accepts.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kakeya_http_shim.tools.argument_types import alternatives, type_of
from kakeya_http_shim.tools.grammars import lark
from kakeya_http_shim.tools.grammars.lark import HeldTool, Spacing

# With the flag of Unicode: where all bytes are allowed around it, those of a token's mark are none of it.
_FREE = "/(?su:.*)/"
_NO_STRUCTURE = r"/(?su:\s*([^\s\[{].*)?)/"
"""Behind white space a brace begins an object or a list."""
_STRUCTURES = ("object", "array")
_SCALARS = {
    "null": "/null/",
    "boolean": "/true|false/",
    "integer": "/-?(0|[1-9][0-9]*)/",
    "number": r"/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/",
}
_PIECE_OF_PATTERN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)


def rules(rule: str, name: str, tool: HeldTool, spacing: Spacing, ends: str) -> Iterator[str]:
    """The rule of that name, which is an argument and the text that ends it; and those that it is made of."""
    branches = alternatives(tool.schema["properties"][name], tool.schema)
    if not any(map(_may_be_text, branches)):
        yield f"{rule}: {rule}_json {lark.text(ends)}"
        yield lark.value(f"{rule}_json", tool.schema["properties"][name], tool.schema, spacing)
        return
    # A scalar is a text among others, if these are not merely some words.
    has_words = all(_words(branch) is not None for branch in branches if _may_be_text(branch))
    in_json = [each for each in branches if not _may_be_text(each) and (has_words or _kind(each) in _STRUCTURES)]
    bare = [each for each in branches if each not in in_json]
    is_beside_structure = any(_kind(each) in _STRUCTURES for each in in_json)
    forms = [f"{rule}_text"]
    if in_json:
        forms.append(f"{rule}_json {lark.text(ends)}")
        yield lark.value(f"{rule}_json", {"anyOf": in_json}, tool.schema, spacing)
    yield f"{rule}: {lark.either(forms)}"
    texts = [text for each in bare for text in _texts(each, _NO_STRUCTURE if is_beside_structure else _FREE)]
    yield from text(f"{rule}_text", ends, texts)


def text(rule: str, ends: str, allowed: Sequence[str] = (_FREE,)) -> Iterator[str]:
    """A rule: a text without the one that ends it, and that. Args: `allowed`: what it may be, in Lark's notation."""
    suffix = f"[suffix={lark.text(ends)}]"
    if _FREE in allowed:
        yield f"{rule}{suffix}: {_FREE}"
        return
    yield f"{rule}{suffix}: {rule.upper()}"
    # Without the latter a text that ends too early would go on behind its end.
    end = _regex(re.escape(ends.removesuffix("\n")))
    yield f"{rule.upper()}: ({lark.either(dict.fromkeys(allowed))}) & ~/(?su:.*){end}(?su:.*)/"


def _may_be_text(branch: Any) -> bool:
    words = _words(branch)
    if words is not None:
        return any(isinstance(word, str) for word in words)
    return _kind(branch) == "string" or branch is True or branch == {}


def _words(branch: Any) -> list[Any] | None:
    """The values that it lists; None: it lists none."""
    if not isinstance(branch, Mapping):
        return None
    listed = [branch["const"]] if "const" in branch else branch.get("enum")
    if not isinstance(listed, list):
        return None
    kind = _kind(branch)
    return [word for word in listed if kind is None or type_of(word) == kind or (kind, type_of(word)) == _WHOLE]


_WHOLE = ("integer", "number")


def _kind(branch: Any) -> str | None:
    return branch.get("type") if isinstance(branch, Mapping) else None


def _texts(branch: Any, free: str) -> Iterator[str]:
    words = _words(branch)
    if words is not None:
        yield from (lark.text(word if isinstance(word, str) else json.dumps(word)) for word in words)
    elif (scalar := _SCALARS.get(_kind(branch) or "")) is not None:
        yield scalar
    else:
        yield " & ".join(_bounds(branch)) or free


def _bounds(branch: Any) -> Iterator[str]:
    """What a text has to match."""
    if not isinstance(branch, Mapping):
        return
    least, most = branch.get("minLength", 0), branch.get("maxLength", "")
    if least or most != "":
        yield f"/(?su:.{{{least},{most}}})/"
    if "pattern" in branch:
        yield f"/{'|'.join(map(_searched, _alternatives_of(branch['pattern'])))}/"


def _alternatives_of(pattern: str) -> list[str]:
    """Of a regular expression, those that stand in no parentheses."""
    found, depth = [""], 0
    for piece in _PIECE_OF_PATTERN.findall(pattern):
        depth += (piece == "(") - (piece == ")")
        if piece == "|" and not depth:
            found.append("")
        else:
            found[-1] += piece
    return found


def _searched(pattern: str) -> str:
    """Of a text in which it is found: in JSON Schema it may stand anywhere."""
    begins = "" if pattern.startswith("^") else "(?su:.*)"
    ends = "" if re.search(r"(?<!\\)(\\\\)*\$$", pattern) else "(?su:.*)"
    bare = pattern.removeprefix("^")
    return f"{begins}(?u:{_regex(bare if ends else bare[:-1])}){ends}"


def _regex(pattern: str) -> str:
    """Between slashes, in one line."""
    in_line = re.sub(r"\\?\n", r"\\n", pattern)
    return re.sub(r"(\\.)|/", lambda at: at[1] or r"\/", in_line)
