"""What every test shares."""

import os
from collections.abc import Iterator

import pytest

# Read when torch is loaded, as workers do it: threads that spin for one another on cores that other tests use take up
# to fifty times as long.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests, and the processes they start, neither read nor fill the caches of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
