"""POST /v1/messages on a whole stack that asks for keys: what is said, what it cost, and where it goes on."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from tests.integration.http_stack import HttpStack, http_stack, prompt_ids, text_ids
from tests.integration.open_http import MODEL
from tests.unit.http_shim.messages_api.asking import named, put_together

NAME = "claude-opus-4-8"
BILLING = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.177; cch=36ee5;"}
SYSTEM = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpStack]:
    directory = tmp_path_factory.mktemp("messages")
    flags = ("--live-sessions", "on", "--model-alias", f"claude-*={MODEL}")
    with http_stack(directory, *flags, KAKEYA_WORKER_SNAPSHOTS=str(directory / "snapshots")) as made:
        yield made


@pytest.fixture
async def client(stack: HttpStack) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"x-api-key": stack.key, "anthropic-version": "2023-06-01"}
    async with httpx.AsyncClient(base_url=stack.base_url, headers=headers, timeout=60) as client:
        yield client


async def ask(client: httpx.AsyncClient, messages: list[Any], **fields: Any) -> httpx.Response:
    body = {"model": NAME, "max_tokens": 40, "temperature": 0, "messages": messages, **fields}
    response = await client.post("/messages", params={"beta": "true"}, json=body)
    assert response.status_code == 200, response.text
    return response


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def text_of(answer: dict[str, Any]) -> str:
    return "".join(block["text"] for block in answer["content"])


async def test_ten_turns_append_their_own_tokens(client: httpx.AsyncClient) -> None:
    messages: list[Any] = []
    said = [("system", "Be brief.")]
    sessions = set()
    for number in range(10):
        messages.append(user(f"What is {number} plus {number}?"))
        said.append(("user", f"What is {number} plus {number}?"))
        response = await ask(client, messages, system=[BILLING, SYSTEM], metadata={"user_id": f"user {number}"})
        answer = response.json()
        usage, session = answer["usage"], answer["usage"]["kakeya"]["session"]
        sessions.add(session["id"])
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == len(prompt_ids(*said))
        if number:
            assert (session["state"], session["why"]) == ("continued", "next-turn")
            behind = f"\n<|im_start|>user\nWhat is {number} plus {number}?<|im_end|>\n<|im_start|>assistant\n"
            assert usage["input_tokens"] == len(text_ids(behind))
        messages.append({"role": "assistant", "content": answer["content"]})
        said.append(("assistant", text_of(answer)))
    assert len(sessions) == 1


async def test_a_stream_is_the_whole_answer(client: httpx.AsyncClient) -> None:
    messages = [user("Tell me a story, please.")]
    whole = (await ask(client, messages)).json()
    response = await ask(client, messages, stream=True)
    told = put_together(named(response.text))
    assert (told["content"], told["stop_reason"]) == (whole["content"], whole["stop_reason"])
    assert text_of(told)


async def test_a_chat_goes_on_in_the_session_of_its_messages(client: httpx.AsyncClient) -> None:
    first = (await ask(client, [user("My name is Julia.")])).json()
    chat = [
        {"role": "user", "content": "My name is Julia."},
        {"role": "assistant", "content": text_of(first)},
        {"role": "user", "content": "What is my name?"},
    ]
    body = {"model": MODEL, "max_tokens": 40, "messages": chat}
    # A key is a key, whichever header has it.
    headers = {"authorization": f"Bearer {client.headers['x-api-key']}"}
    told = (await client.post("/chat/completions", json=body, headers=headers)).json()["usage"]["kakeya"]["session"]
    assert (told["state"], told["id"]) == ("continued", first["usage"]["kakeya"]["session"]["id"])


async def test_tokens_are_counted_to_the_token(client: httpx.AsyncClient) -> None:
    body = {"model": NAME, "system": [BILLING, SYSTEM], "messages": [user("Hello")]}
    counted = (await client.post("/messages/count_tokens", json=body)).json()
    assert counted == {"input_tokens": len(prompt_ids(("system", "Be brief."), ("user", "Hello")))}


async def test_stop_sequences_and_what_is_gone_on_with(client: httpx.AsyncClient) -> None:
    messages = [user("Tell me a story about a fox, please.")]
    text = text_of((await ask(client, messages)).json())
    stopped = (await ask(client, messages, stop_sequences=["never said", text[5:8]])).json()
    assert text_of(stopped) == text[: text.index(text[5:8])]
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", text[5:8])
    begun = {"role": "assistant", "content": text[:5]}
    rest = await ask(client, [*messages, begun])
    assert rest.headers["kakeya-session"].startswith("new; appended=")


@pytest.mark.parametrize("headers", [{"x-api-key": ""}, {"x-api-key": "wrong"}, {"authorization": "Bearer wrong"}])
async def test_without_a_good_key(client: httpx.AsyncClient, headers: dict[str, str]) -> None:
    for path in ("/messages", "/messages/count_tokens"):
        response = await client.post(path, json={"messages": [user("Hello")], "max_tokens": 1}, headers=headers)
        error = response.json()
        assert (response.status_code, error["type"]) == (401, "error")
        assert error["error"]["type"] == "authentication_error"
        assert error["request_id"] == response.headers["request-id"]
