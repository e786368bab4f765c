"""What a folder's fixtures set up ends with its tests: one process runs those of many folders, in any order."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.packages import ROOT, parsed

TESTS = ROOT / "tests"
CHANGES_ALL = {"setenv", "delenv", "environ", "Runtime"}
"""What other folders' tests read: variables, and how services are started."""


def lasting(module: ast.Module) -> Iterator[ast.FunctionDef]:
    """Fixtures that nobody asks for and that last until the end of the session."""
    for function in ast.walk(module):
        if isinstance(function, ast.FunctionDef):
            marks = {
                ast.unparse(keyword) for each in function.decorator_list for keyword in getattr(each, "keywords", ())
            }
            if {"scope='session'", "autouse=True"} <= marks:
                yield function


def words(node: ast.AST) -> set[str]:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def reaching_others(file: Path) -> list[str]:
    return [f"{file.relative_to(ROOT)}: {each.name}" for each in lasting(parsed(file)) if words(each) & CHANGES_ALL]


def test_no_folder_changes_what_tests_of_others_read() -> None:
    own = [file for file in TESTS.rglob("conftest.py") if file.parent != TESTS]
    assert [found for file in own for found in reaching_others(file)] == []


def test_such_a_change_is_found() -> None:
    assert reaching_others(TESTS / "conftest.py")  # its own: for all tests
