"""What the documents point at is there: links, headings, files by name, rooms."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.house.packages import PACKAGES, ROOT

_LEFT_OUT = ("node_modules", "build", "dist")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w./-]+\.(?:py|lua)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
HISTORY = "CHANGELOG.md"
"""Names files as they were."""


def documents() -> list[Path]:
    folders = [each for each in ROOT.iterdir() if each.is_dir() and not each.name.startswith(".")]
    found = [*ROOT.glob("*.md"), *(file for folder in folders for file in folder.rglob("*.md"))]
    return sorted(each for each in found if not any(_is_left_out(part) for part in each.relative_to(ROOT).parts))


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or name in _LEFT_OUT


def anchors(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return found


def dead_links(document: Path, text: str) -> Iterator[str]:
    """Those to files and headings of this repository; the web is not asked."""
    for target in _LINK.findall(_FENCE.sub("", text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = document.parent / path if path else document
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            yield target


def missing_files(text: str, known: list[str]) -> Iterator[str]:
    """Names in backticks that no file's path ends in."""
    for code in _CODE.findall(_FENCE.sub("", text)):
        if _FILE.fullmatch(code) and not any(f"/{path}".endswith(f"/{code.lstrip('./')}") for path in known):
            yield code


def test_links_lead_somewhere() -> None:
    dead = {
        str(each.relative_to(ROOT)): found for each in documents() if (found := [*dead_links(each, each.read_text())])
    }
    assert dead == {}


def test_files_that_are_named_are_there() -> None:
    folders = ("bench", "models", "ops", "proto", "scripts", "sdks", "services", "shared", "tests")
    known = [
        str(file.relative_to(ROOT))
        for folder in folders
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".lua")
    ]
    missing = {
        str(each.relative_to(ROOT)): found
        for each in documents()
        if each.name != HISTORY and (found := {*missing_files(each.read_text(), known)})
    }
    assert missing == {}


def pictures(text: str) -> dict[str, list[set[str]]]:
    """The layers of packages as ARCHITECTURE.md draws them, from the door down."""
    found = {}
    for block in re.findall(r"^```\n(kakeya[\w.]*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        package, lines = block
        rooms = (re.split(r" {2,}", line.strip(), maxsplit=1)[0] for line in lines.splitlines())
        found[package] = [{room.strip() for room in line.split("|")} for line in rooms]
    return found


def test_the_pictures_of_rooms_are_the_layers_that_are_kept() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    kept = {
        package: [{room.strip() for room in layer.split("|")} for layer in contract["layers"]]
        for contract in contracts
        for package in contract.get("containers", ())
    }
    drawn = pictures((ROOT / "ARCHITECTURE.md").read_text())
    assert drawn == {package: layers for package, layers in kept.items() if package in drawn}
    assert {each.name for each in PACKAGES} & kept.keys() <= drawn.keys()


def test_what_is_dead_or_missing_is_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "# One `word`, two\n\n[a](#one-word-two) [b](#no) [c](b.md#two) [d](b.md#three) [e](no.md) [f](https://x.y)\n"
        "`here.py` `room/here.py` `other/here.py` `no.py` `a sentence of no.py`\n```\n[g](no.md) `no.lua`\n```\n"
    )
    (tmp_path / "b.md").write_text("## Two\n")
    text = document.read_text()
    assert [*dead_links(document, text)] == ["#no", "b.md#three", "no.md"]
    assert [*missing_files(text, ["src/room/here.py"])] == ["other/here.py", "no.py"]
