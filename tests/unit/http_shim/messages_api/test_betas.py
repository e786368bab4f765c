"""Which betas of a request do nothing here."""

import pytest

from kakeya_http_shim.messages_api.betas import SERVED, ignored_betas


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ([], None),
        ([b""], None),
        ([b"prompt-caching-2024-07-31,oauth-2025-04-20", b"claude-code-20250219"], None),
        ([b"a-2025-01-01, b,, a-2025-01-01"], "a-2025-01-01, b"),
        ([b"claude-code-of-another-kind"], "claude-code-of-another-kind"),
        (["ä, no good name, 2025".encode()], "2025"),
        ([b"x" * 65], None),
        ([",".join(f"b{number}" for number in range(40)).encode()], ", ".join(f"b{number}" for number in range(32))),
    ],
)
def test_names(values: list[bytes], named: str | None) -> None:
    scope = {"type": "http", "headers": [(b"anthropic-beta", value) for value in values]}
    assert ignored_betas(scope) == ({} if named is None else {"kakeya-ignored-betas": named})


def test_the_list_is_in_order() -> None:
    assert list(SERVED) == sorted(set(SERVED))
