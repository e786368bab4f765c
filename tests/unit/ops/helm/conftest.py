"""What the chart's tests need beyond Python."""

import pytest

from tests.unit.ops.helm import chart


@pytest.fixture(autouse=True)
def _helm() -> None:
    if not chart.helm():
        pytest.skip("helm is not installed (make test-helm installs it)")
