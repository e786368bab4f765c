"""When a valid request may be told that it is too long."""

from typing import Any

import pytest

from tests.soak.fuzz_http.answer_checks import WINDOW, may_not_fit

_LONG = "x" * WINDOW
_SAID = [{"role": "user", "content": _LONG}]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": _SAID, "kakeya": {"on_overflow": "refuse"}},
        {"prompt": _LONG, "kakeya": {"on_overflow": "refuse"}},
        {"messages": _SAID, "truncate": False},
        {"messages": _SAID, "shift": False, "kakeya": {}},
        {"messages": [{"role": "developer", "content": _LONG}]},
        {"messages": [], "system": _LONG},
        {"messages": [], "tools": [{"name": _LONG}]},
    ],
)
def test_what_must_be_kept_may_not_fit(body: dict[str, Any]) -> None:
    assert may_not_fit(body)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": _SAID},
        {"messages": _SAID, "tools": [{"name": "f"}]},
        {"messages": _SAID, "truncate": False, "kakeya": {"on_overflow": "evict"}},
        {"messages": [{"role": "user", "content": "x"}], "kakeya": {"on_overflow": "refuse"}},
    ],
)
def test_what_may_be_forgotten_or_is_short_always_fits(body: dict[str, Any]) -> None:
    assert not may_not_fit(body)
