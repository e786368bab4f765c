"""That no arrow inside a package escapes the contracts of import-linter."""

import tomllib
from pathlib import Path

from tests.house.exceptions import EXCEPTIONS
from tests.house.packages import PACKAGES, ROOT, named


def _rooms(folder: Path) -> list[Path]:
    return [each.parent for each in folder.glob("*/__init__.py")]


def test_every_folder_with_rooms_has_layers_and_nothing_new_escapes_them() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layered = {
        container
        for contract in contracts
        if contract["type"] == "layers" and contract.get("exhaustive")
        for container in contract.get("containers", ())
    }
    folders = [each.parent for package in PACKAGES for each in package.rglob("__init__.py") if _rooms(each.parent)]
    without = {name for each in folders if (name := named(each)).replace("/", ".") not in layered}
    assert without - set(EXCEPTIONS) == set()
    assert len(folders) > len(without)
