from collections.abc import Iterator

import pytest
import structlog

UNTOUCHED_LOGS = structlog.get_config()


@pytest.fixture(autouse=True)
def untouched_logs() -> Iterator[None]:
    """The bench configures structlog for its process; the next test finds it as if none had run."""
    yield
    structlog.configure(**UNTOUCHED_LOGS)
