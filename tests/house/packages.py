"""The packages of the house and their sources."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(each.parent for each in ROOT.glob("*/src/*/__init__.py")) + sorted(
    each.parent for each in ROOT.glob("*/*/src/*/__init__.py") if each.parent.name != "kakeya_stubs"
)
_NO_MODULES = ("__init__.py", "__main__.py")


@cache
def package(name: str) -> Path:
    return next(each for each in PACKAGES if each.name == name)


def files(of: Path, *suffixes: str) -> Iterator[Path]:
    return (each for each in sorted(of.rglob("*")) if each.suffix in suffixes)


def is_module(file: Path) -> bool:
    return file.name not in _NO_MODULES


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def named(path: Path) -> str:
    """From its package on."""
    return str(path.relative_to(next(each for each in PACKAGES if path.is_relative_to(each)).parent))


def worse_than(listed: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """What is to be mended in the tree, or in a list of what is not yet as it should be."""
    grown = [
        f"{name}: {number}, not {listed.get(name, 0)}" for name, number in found.items() if number > listed.get(name, 0)
    ]
    return grown + [f"{name} is well: take it off the list" for name in listed if name not in found]
