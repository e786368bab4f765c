"""What the Python and the TypeScript SDK have, side by side; fails where one lacks something without a reason.

    python scripts/sdk_parity.py [--check] PAGE

Both are read as they are: Python's by inspection, TypeScript's by its compiler (sdks/typescript/scripts/surface.mjs).
What one side has on purpose, or neither, stands in EXCEPTIONS with the reason. One that is no exception any more is a
failure, too.
"""

import argparse
import ast
import dataclasses
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import kakeya
from kakeya.cli.flags import connection_flags
from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.v1 import runtime_pb2

ROOT = Path(__file__).resolve().parent.parent
TYPESCRIPT = ROOT / "sdks" / "typescript"
PYTHON = ROOT / "sdks" / "python" / "src" / "kakeya"
CLASSES = {
    "Client": kakeya.AsyncClient,
    "Session": kakeya.AsyncSession,
    "Generation": kakeya.AsyncGeneration,
    "WatchedRuntime": kakeya.WatchedRuntime,
    "Grammar": kakeya.Grammar,
    "Reasoning": kakeya.Reasoning,
}
MADE_BY_CALLERS = ("Client", "Reasoning")
"""The others come from calls."""

EXCEPTIONS = {
    "Client.fromEnvironment": "Python: the command's flags read these variables",
    "Client.admin": "Python: the subcommands of `kakeya` are the operators' client",
    "Client.watch_responses": "for the live page; TypeScript exports no messages of the contract",
    "Client(apiKeyFile)": "Python: the command's `--api-key-file`",
    "Session.fork": "`create_session(fork_from=session)`, which TypeScript has, too",
    "*(signal)": "Python: asyncio cancels the task",
    "AbortError": "Python: asyncio's CancelledError",
    "Client.store_object": "for servers that keep answers, as the HTTP shim does",
    "Client.fetch_object": "as `store_object`",
    "FetchedObject.data": "as `store_object`",
    "FetchedObject.version": "as `store_object`",
    "Client.update_object": "as `store_object`",
    "Client.delete_object": "as `store_object`",
    "Client.go_on": "for servers whose answers others go on with, as the HTTP shim's",
    "Generation.resumption": "as `go_on`",
    "Generation.before_going_on": "as `go_on`",
    "rpc StoreObject": "as `store_object`",
    "rpc FetchObject": "as `store_object`",
    "rpc UpdateObject": "as `store_object`",
    "rpc DeleteObject": "as `store_object`",
    "rpc ForkSession": "CreateSession with fork_from does the same",
}
"""By the name in the one that has it; `*` is any method."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One thing, by its name in each; "" where it is not."""

    kind: str
    python: str
    typescript: str
    of_neither: str = ""

    @property
    def name(self) -> str:
        return self.typescript or self.python or self.of_neither

    @property
    def keys(self) -> tuple[str, str]:
        """By which EXCEPTIONS may have it."""
        return self.name, re.sub(r"^[^(]*(?=\()", "*", self.name)

    @property
    def reason(self) -> str:
        """Why one of them lacks it; "" for no reason."""
        return next((EXCEPTIONS[key] for key in self.keys if key in EXCEPTIONS), "")


def camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def surface() -> dict[str, Any]:
    """What TypeScript exports."""
    command = ["node", str(TYPESCRIPT / "scripts" / "surface.mjs")]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def rows(exported: Mapping[str, Any]) -> Iterator[Row]:
    """All of it, in the order of the page."""
    for name, python in CLASSES.items():
        yield from _members(name, python, exported["classes"][name])
    yield from _options("tlsCredentials", kakeya.tls_credentials, exported["functions"]["tlsCredentials"])
    yield from _results(exported)
    yield from _errors(exported)
    yield from _variables()
    yield from _rpcs()


def _pairs(kind: str, python: Mapping[str, str], typescript: Mapping[str, str]) -> Iterator[Row]:
    """Args: by the name that both share, what each calls it."""
    for name in sorted(python.keys() | typescript.keys()):
        yield Row(kind, python.get(name, ""), typescript.get(name, ""))


def _members(name: str, python: type, described: Mapping[str, Any]) -> Iterator[Row]:
    public = [] if name == "Reasoning" else _public(python)  # whose fields are what it is made of
    theirs = {camel(each): f"{name}.{each}" for each in public}
    yield from _pairs("method", theirs, {each: f"{name}.{each}" for each in described["members"]})
    if name in MADE_BY_CALLERS:
        yield from _options(name, python, described["constructor"])
    for each in public:
        method = inspect.getattr_static(python, each, None)
        function = getattr(method, "__func__", method)
        if inspect.isfunction(function) and camel(each) in described["members"]:
            yield from _options(f"{name}.{camel(each)}", function, described["members"][camel(each)])


def _public(python: type) -> list[str]:
    """Methods, properties and attributes; those that are inherited, too."""
    found = {name for name, _ in inspect.getmembers(python) if not name.startswith("_")}
    found |= {each.name for each in dataclasses.fields(python)} if dataclasses.is_dataclass(python) else set()
    for base in python.__mro__[:-1]:
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base)))
        found |= set(_assigned(tree))
    return sorted(name for name in found if not name.startswith("_") and name != "wire")


def _assigned(tree: ast.AST) -> Iterator[str]:
    """Attributes that methods give an object."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def _options(name: str, function: Any, parameters: list[str]) -> Iterator[Row]:
    given = inspect.signature(function).parameters.values()
    theirs = [each.name for each in given if each.kind is not each.VAR_KEYWORD and each.name not in ("self", "cls")]
    for each in given:
        if each.kind is each.VAR_KEYWORD:
            theirs += _unpacked(function).__annotations__.keys()
    snake = name if "." not in name else f"{name.partition('.')[0]}.{_snake(name.partition('.')[2])}"
    yield from _pairs(
        "option", {camel(each): f"{snake}({each})" for each in theirs}, {each: f"{name}({each})" for each in parameters}
    )


def _unpacked(function: Any) -> type:
    """The options that a method takes by name."""
    kind: type = get_args(inspect.get_annotations(function)["options"])[0]
    return kind


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", name)


def _results(exported: Mapping[str, Any]) -> Iterator[Row]:
    for name in kakeya.__all__:
        python = getattr(kakeya, name)
        if not isinstance(python, type) or name in CLASSES:
            continue
        if issubclass(python, StrEnum):
            ours = {each: f"{name} {each}" for each in exported["values"].get(name, [])}
            yield from _pairs("value", {str(each): f"{name} {each}" for each in python}, ours)
        elif dataclasses.is_dataclass(python):
            fields = {each.name for each in dataclasses.fields(python)}
            fields |= {each for each, value in inspect.getmembers(python) if isinstance(value, property)}
            known = exported["fields"].get(name, [])
            theirs = {camel(each): f"{name}.{each}" for each in fields}
            # TypeScript may say more of a message than Python picks out.
            yield from _pairs("result", theirs, {each: f"{name}.{each}" for each in known if each in theirs})


def _errors(exported: Mapping[str, Any]) -> Iterator[Row]:
    theirs = {each for each in kakeya.__all__ if _is_error(getattr(kakeya, each))}
    members = set(exported["classes"]["KakeyaError"]["members"])
    ours = {each for each, described in exported["classes"].items() if members <= described["members"].keys()}
    ours |= {"MissingExtra"} & exported["classes"].keys()
    yield from _pairs("error", {each: each for each in theirs}, {each: each for each in ours})


def _is_error(python: Any) -> bool:
    return isinstance(python, type) and issubclass(python, Exception)


def _variables() -> Iterator[Row]:
    parser = argparse.ArgumentParser()
    connection_flags.add(parser)
    theirs = re.findall(r"KAKEYA_[A-Z_]+", parser.format_help())
    ours = re.findall(r"KAKEYA_[A-Z_]+", _sources(TYPESCRIPT / "src", ".ts"))
    yield from _pairs("variable", {each: each for each in theirs}, {each: each for each in ours})


def _rpcs() -> Iterator[Row]:
    theirs, ours = _sources(PYTHON, ".py"), _sources(TYPESCRIPT / "src", ".ts")
    for service in (
        runtime_pb2.DESCRIPTOR.services_by_name["RuntimeService"],
        admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
    ):
        for method in service.methods:
            name = f"rpc {method.name}"
            is_ours = f"method.{method.name[0].lower()}{method.name[1:]}" in ours
            is_theirs = f'"{method.name}"' in theirs
            yield Row("rpc", name if is_theirs else "", name if is_ours else "", name)


def _sources(folder: Path, suffix: str) -> str:
    files = (file for file in sorted(folder.rglob(f"*{suffix}")) if "_generated" not in file.parts)
    return "\n".join(file.read_text() for file in files)


def page(found: list[Row]) -> str:
    lines = [
        "# The two SDKs, side by side",
        "",
        "Made by `make sdk-parity` of what both export. `make check` fails where one lacks something without a reason.",
        "",
        "| what | Python | TypeScript | why one has it alone |",
        "| --- | --- | --- | --- |",
    ]
    for row in found:
        cells = [f"`{each}`" if each else "" for each in (row.python, row.typescript)]
        reason = "" if row.python and row.typescript else row.reason
        lines.append(f"| {row.of_neither if not any(cells) else row.kind} | {cells[0]} | {cells[1]} | {reason} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where the page is not what it would be"
    )
    flags = parser.parse_args()
    found = list(rows(surface()))
    lacking = [row for row in found if not (row.python and row.typescript) and not row.reason]
    for row in lacking:
        print(f"parity: {row.kind} {row.name} is in one SDK only", file=sys.stderr)
    unused = EXCEPTIONS.keys() - {key for row in found if not (row.python and row.typescript) for key in row.keys}
    for name in sorted(unused):
        print(f"parity: {name} is no exception any more", file=sys.stderr)
    made = page(found)
    if not flags.check:
        flags.page.write_text(made)
    elif flags.page.read_text() != made:
        print(f"drift: {flags.page} (make sdk-parity)", file=sys.stderr)
        return 1
    print(f"{len(found)} things of the SDKs are side by side")
    return 1 if lacking or unused else 0


if __name__ == "__main__":
    sys.exit(main())
