"""What the end-to-end tests share: neither settings nor places of the person who runs them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def own_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """XDG and temporary directories of a module's own; a stack that is killed hard leaves its temporary one."""
    home = tmp_path_factory.mktemp("home")
    (home / "tmp").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("KAKEYA_") and not name.startswith("KAKEYA_TEST_"):
                patch.delenv(name)
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        patch.setenv("TMPDIR", str(home / "tmp"))
        yield home
