"""Lines for Anthropic's books are not for the model."""

import pytest

from kakeya_http_shim.messages_api import attribution

LINE = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch=36ee5;"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (LINE, ""),
        (f"{LINE}\n", ""),
        (f"{LINE}\nYou are an agent.", "You are an agent."),
        (f"{LINE}\r\n\r\nYou are an agent.\n", "\r\nYou are an agent.\n"),
        (f"{LINE}\n{LINE}\nYou are an agent.", "You are an agent."),
        (f"You are an agent.\n{LINE}\n", f"You are an agent.\n{LINE}\n"),
        ("X-Anthropic-Billing", "X-Anthropic-Billing"),
        ("", ""),
    ],
)
def test_what_is_left_of_a_system_prompt(text: str, left: str) -> None:
    assert attribution.without(text) == left
