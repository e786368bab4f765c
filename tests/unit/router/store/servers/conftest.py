from collections.abc import Iterator

import pytest

from tests.redis_groups import SentinelGroup, sentinel_group


@pytest.fixture(scope="package")
def _group() -> Iterator[SentinelGroup]:
    with sentinel_group(1, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1") as group:
        yield group


@pytest.fixture
def group(_group: SentinelGroup) -> Iterator[SentinelGroup]:
    """A primary that takes writes as long as it has its replica, both well; tests leave it in any state."""
    yield _group
    _group.heal()
