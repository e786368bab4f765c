"""What every test shares."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

UNIT_TESTS = Path(__file__).parent / "unit"


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Line coverage is what unit tests reach by themselves; to trace the others, too, only costs time."""
    for item in items:
        if UNIT_TESTS not in item.path.parents:
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests, and the processes they start, neither read nor fill the caches of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
