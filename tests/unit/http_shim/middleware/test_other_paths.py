"""One path for all the ways to write it."""

import pytest

from kakeya_http_shim.middleware.other_paths import OtherPaths
from tests.unit.http_shim.served import echo, raw_client


@pytest.mark.parametrize(
    ("asked", "served"),
    [
        ("/v1/models", "/v1/models"),
        ("/v1/models/", "/v1/models"),
        ("/v1/models//", "/v1/models"),
        ("/models", "/v1/models"),
        ("/models/", "/v1/models"),
        ("/models/owner/name", "/v1/models/owner/name"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/chat/completions/?a=/", "/v1/chat/completions"),
        ("/completions", "/v1/completions"),
        ("/messages", "/v1/messages"),
        ("/messages/count_tokens/", "/v1/messages/count_tokens"),
        ("/responses", "/v1/responses"),
        ("/responses/resp_1/input_items/", "/v1/responses/resp_1/input_items"),
        ("/conversations", "/v1/conversations"),
        ("/conversations/conv_1/items/msg_1", "/v1/conversations/conv_1/items/msg_1"),
        ("/tokenize/", "/tokenize"),
        ("/", "/"),
        ("//", "/"),
        ("/modelsx", "/modelsx"),
        ("/responsesx/y", "/responsesx/y"),
        ("/completions/x", "/completions/x"),
    ],
)
async def test_paths(asked: str, served: str) -> None:
    async with raw_client(OtherPaths(echo)) as client:
        assert (await client.get(asked)).body == served.encode()
