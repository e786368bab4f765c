"""What a router says at its start of a configuration in which something cannot be done."""

from typing import Any

import pytest
import structlog

from tests.unit.router.keyed import ADMIN_KEY
from tests.unit.router.stack import stack_on


@pytest.mark.parametrize(
    ("settings", "is_warned"),
    [({"auth": "keys"}, True), ({"auth": "keys", "admin_key": ADMIN_KEY}, False), ({"auth": "none"}, False)],
)
async def test_without_an_administrators_key(redis_url: str, settings: dict[str, Any], is_warned: bool) -> None:
    with structlog.testing.capture_logs() as lines:
        async with stack_on(redis_url) as stack:
            await stack.router(**settings)
    warnings = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert [line for line in warnings if "KAKEYA_ROUTER_ADMIN_KEY" in line] == warnings
    assert len(warnings) == is_warned
