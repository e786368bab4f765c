"""What the fuzz knows of requests beyond their schemas."""

from typing import Any

import pytest

from tests.soak.fuzz_http.answer_checks import WINDOW, broken_rules, may_not_fit

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


_STRICT = {"type": "function", "name": "f", "strict": True}
_IN_NAMESPACE = {"type": "namespace", "name": "space", "tools": [_STRICT]}
_NAMED = {"type": "function", "name": "space__f"}


@pytest.mark.parametrize(
    ("body", "params"),
    [
        ({"ignore_eos": True, "tools": [_STRICT]}, ["ignore_eos"]),
        ({"ignore_eos": True, "tools": [{"type": "web_search"}, _IN_NAMESPACE]}, ["ignore_eos"]),
        ({"ignore_eos": True, "tools": [_IN_NAMESPACE], "tool_choice": "none"}, []),
        ({"ignore_eos": True, "tools": [_IN_NAMESPACE | {"tools": [_STRICT | {"strict": False}]}]}, []),
        ({"tools": [_IN_NAMESPACE], "tool_choice": _NAMED}, []),
        ({"tools": [_IN_NAMESPACE], "tool_choice": _NAMED | {"name": "space"}}, ["tool_choice"]),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, ["tool_choice"]),
        ({"tools": [{"function": {"name": "f"}}], "tool_choice": {"type": "function", "function": {"name": "f"}}}, []),
    ],
)
def test_functions_of_namespaces_are_offered_and_may_be_strict(body: dict[str, Any], params: list[str]) -> None:
    assert [param for param, _ in broken_rules(body, 1000)] == params
