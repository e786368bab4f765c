"""What the harness of chaos takes for a fault."""

import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.redis_groups import NAME, asked, sentinel_group
from tests.soak.chaos.faults import Faults, Ground


@pytest.mark.parametrize("is_replicated", [True, False])
def test_a_failover_of_sentinels_own_is_a_fault(*, is_replicated: bool) -> None:
    """Where not all that is acknowledged is replicated, sessions of before may have lost something."""
    unused: Any = None
    with sentinel_group(1) as group:
        made = cast(Any, SimpleNamespace(redis=group))
        ground = Ground(
            *(made, (), Path(), unused, unused), has_redis_faults=True, group=group, is_replicated=is_replicated
        )
        group.set_down_after(60_000)  # on a busy machine there would be others
        faults, began, old = Faults(ground, unused, random.Random(1)), time.monotonic(), group.primary
        faults.look_for_failovers()
        assert not faults.redis_is_to_blame
        asked(group.sentinels[0], "SENTINEL", "FAILOVER", NAME)
        group.wait_for_another(old)
        for _ in range(2):
            faults.look_for_failovers()
        assert faults.redis_is_to_blame
        assert faults.may_have_lost(began) is not is_replicated
        assert not faults.may_have_lost(time.monotonic())
        assert faults.counts["a failover that nothing here caused"] == 1
