"""How much is in one place: modules in a folder, lines in a file, lines in a function."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.house.exceptions import EXCEPTIONS, LARGE_NOT_YET, MAX_EXCEPTIONS
from tests.house.packages import PACKAGES, files, is_module, named, parsed, worse_than

MAX_MODULES = 15
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50


def _folders(package: Path) -> dict[str, int]:
    modules = Counter(named(each.parent) for each in files(package, ".py", ".lua") if is_module(each))
    return {folder: number for folder, number in modules.items() if number > MAX_MODULES}


def _files(package: Path) -> dict[str, int]:
    lines = {named(each): len(each.read_text().splitlines()) for each in files(package, ".py", ".lua")}
    return {file: number for file, number in lines.items() if number > MAX_FILE_LINES}


def _functions(package: Path) -> dict[str, int]:
    lines = {
        f"{named(each)}::{name}": number
        for each in files(package, ".py")
        for name, number in function_lines(parsed(each)).items()
    }
    return {function: number for function, number in lines.items() if number > MAX_FUNCTION_LINES}


def function_lines(module: ast.AST, outer: str = "") -> dict[str, int]:
    """By a function's name with its class: its lines, signature included, docstring and decorators not."""
    found = {}
    for node in ast.iter_child_nodes(module):
        name = outer
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{outer}.{node.name}".removeprefix(".")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[name] = _num_lines(node) - (_num_lines(node.body[0]) if ast.get_docstring(node) else 0)
        found |= function_lines(node, name)
    return found


def _num_lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _is_excepted(name: str) -> bool:
    return any(name == each or name.startswith((f"{each}/", f"{each}::")) for each in EXCEPTIONS)


def _large() -> Iterator[tuple[str, int]]:
    for package in PACKAGES:
        yield from (_folders(package) | _files(package) | _functions(package)).items()


def test_nothing_is_larger_than_it_may_be() -> None:
    large = {name: number for name, number in _large() if not _is_excepted(name)}
    assert worse_than(LARGE_NOT_YET, large) == []


def test_exceptions_are_few_and_needed() -> None:
    assert len(EXCEPTIONS) <= MAX_EXCEPTIONS
    large = dict(_large())
    for each in EXCEPTIONS:
        assert any(name == each or name.startswith((f"{each}/", f"{each}::")) for name in large), each


def test_lines_of_functions_are_counted() -> None:
    source = '''
class A:
    @decorated
    def first(self):
        """Its words
        do not count."""
        def inner():
            return 1
        return inner

async def second(
    one,
):
    pass
'''
    assert function_lines(ast.parse(source)) == {"A.first": 4, "A.first.inner": 2, "second": 4}


def test_a_list_of_what_is_not_yet_well_can_only_shrink() -> None:
    listed = {"a": 20, "b": 20, "c": 20}
    assert worse_than(listed, {"a": 20, "b": 19, "c": 1}) == []
    assert worse_than(listed, {"a": 21, "b": 20, "d": 16}) == [
        "a: 21, not 20",
        "d: 16, not 0",
        "c is well: take it off the list",
    ]
