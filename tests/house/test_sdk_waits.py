"""SDKs outwait what a router that vanished leaves behind, by the defaults of both."""

import re

from kakeya._transport._retry import SETTLE_SECONDS
from kakeya_router.settings import RouterSettings
from tests.house.packages import ROOT

LONGEST_PAUSE_SECONDS = 2.0
"""Between two attempts of an SDK."""


def test_a_lost_append_is_tried_until_its_lease_has_lapsed() -> None:
    lease_seconds: float = RouterSettings.model_fields["operation_lease_seconds"].default
    source = (ROOT / "sdks/typescript/src/transport/retry.ts").read_text()
    in_typescript = re.search(r"SETTLE_SECONDS = (\d+);", source)
    assert in_typescript is not None
    assert lease_seconds + LONGEST_PAUSE_SECONDS < SETTLE_SECONDS == float(in_typescript[1])
