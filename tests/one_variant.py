"""A pytest plugin (`-p tests.one_variant`): of a parametrized test only its first variant is run."""

import pytest


@pytest.hookimpl(trylast=True)  # of those that `-m` and the like leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    first: dict[str, pytest.Item] = {}
    others = [item for item in items if first.setdefault(item.nodeid.partition("[")[0], item) is not item]
    config.hook.pytest_deselected(items=others)
    items[:] = first.values()
