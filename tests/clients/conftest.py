"""A stack for clients: one worker of kakeya-nano in float32, whose numbers can be compared with other libraries'."""

from collections.abc import Iterator

import pytest

from kakeya_shared import installed_models
from tests.integration.open_http import MODEL
from tests.integration.processes import Runtime, runtime

WINDOW = 1020


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with runtime(installed_models.directory(MODEL), tmp_path_factory.mktemp("stack"), num_workers=0) as made:
        made.start_worker("--weights=float32", f"--window={WINDOW}", lanes=4)
        made.wait_for_workers(1)
        made.start_http("--live-sessions=off")  # the clients' requests are single ones
        yield made
