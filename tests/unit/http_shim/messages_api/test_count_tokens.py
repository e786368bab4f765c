"""POST /v1/messages/count_tokens."""

from typing import Any

from tests.unit.http_shim.messages_api.asking import COUNT, ask, count
from tests.unit.http_shim.shim import HELLO, Shim


async def test_it_is_what_the_message_takes(shim: Shim) -> None:
    fields: dict[str, Any] = {
        "system": [{"type": "text", "text": "Be kind."}],
        "messages": [*HELLO, {"role": "assistant", "content": "Hi!"}, {"role": "user", "content": "And?"}],
    }
    counted = await count(shim, **fields)
    assert not shim.runtime.requests["CreateSession"]
    assert (await ask(shim, **fields, max_tokens=1)).json()["usage"]["input_tokens"] == counted


async def test_of_an_answer_that_is_gone_on_with(shim: Shim) -> None:
    before = await count(shim)
    assert await count(shim, messages=[*HELLO, {"role": "assistant", "content": "I am"}]) == before + 4


async def test_what_is_wrong_with_it(shim: Shim) -> None:
    for body in ({}, {"messages": HELLO, "max_tokens": 1}, {"messages": [{"role": "assistant", "content": ""}]}):
        response = await shim.http.post(COUNT, json=body)
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"
