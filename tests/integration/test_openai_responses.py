"""The `openai` package, unmodified, asks for responses and keeps conversations: all that its calls can do here."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from tests.integration.http_stack import HttpStack, http_stack, prompt_ids, text_ids
from tests.integration.open_http import MODEL


class Payment(BaseModel):
    """What an answer is held to."""

    is_cash: bool


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpStack]:
    directory = tmp_path_factory.mktemp("responses")
    with http_stack(directory, "--live-sessions", "on", KAKEYA_WORKER_SNAPSHOTS=str(directory / "snapshots")) as made:
        yield made


@pytest.fixture
async def client(stack: HttpStack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=stack.base_url, api_key=stack.key, max_retries=0) as client:
        yield client


async def create(client: openai.AsyncOpenAI, text: Any, **fields: Any) -> Response:
    given = {"model": MODEL, "input": text, "temperature": 0, "max_output_tokens": 40, **fields}
    response = await client.responses.create(**given)
    assert isinstance(response, Response)
    return response


def session(response: Response) -> dict[str, Any]:
    """Which session it came from."""
    assert response.usage is not None
    found: dict[str, Any] = response.usage.model_extra["kakeya"]["session"]  # type: ignore[index]  # ours has more
    return found


async def test_a_response_is_created_looked_at_and_deleted(client: openai.AsyncOpenAI) -> None:
    response = await create(client, "What is your name?", instructions="Be brief.", metadata={"a": "b"})
    assert response.output_text
    assert (response.status, response.error, response.metadata) == ("completed", None, {"a": "b"})
    assert response.usage is not None
    assert response.usage.input_tokens == len(prompt_ids(("system", "Be brief."), ("user", "What is your name?")))
    assert response.usage.output_tokens == len(text_ids(response.output_text)) + 1
    assert await client.responses.retrieve(response.id) == response
    items: list[Any] = [item async for item in client.responses.input_items.list(response.id)]
    assert [item.content[0].text for item in items] == ["What is your name?"]
    await client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(response.id)


async def test_items_page_by_page(client: openai.AsyncOpenAI) -> None:
    said = [{"role": "user", "content": f"{number}"} for number in range(5)]
    response = await create(client, said)
    pages = client.responses.input_items.list(response.id, limit=2, order="asc")
    items: list[Any] = [item async for item in pages]
    assert [item.content[0].text for item in items] == ["0", "1", "2", "3", "4"]


async def test_a_stream_is_the_whole_answer(client: openai.AsyncOpenAI) -> None:
    whole = await create(client, "Tell me a story, please.")
    asked: dict[str, Any] = {"model": MODEL, "input": "Tell me a story, please.", "temperature": 0}
    async with client.responses.stream(**asked, max_output_tokens=40) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert (final.output_text, final.status) == (whole.output_text, whole.status)
    plain = await client.responses.create(**asked, max_output_tokens=40, stream=True)
    kinds = [event.type async for event in plain]
    assert kinds == [event.type for event in events]
    kept = await client.responses.retrieve(final.id)
    assert (kept.output_text, kept.usage, kept.status) == (final.output_text, final.usage, final.status)


async def test_an_answer_is_parsed(client: openai.AsyncOpenAI) -> None:
    told: dict[str, Any] = {"model": MODEL, "input": "Pay", "max_output_tokens": 60}
    response = await client.responses.parse(**told, text_format=Payment)
    assert isinstance(response.output_parsed, Payment)
    async with client.responses.stream(**told, text_format=Payment) as stream:
        assert isinstance((await stream.get_final_response()).output_parsed, Payment)
    again = await create(client, [*response.output, {"role": "user", "content": "And?"}])
    assert again.status == "completed"


async def test_turns_by_the_id_of_the_last_one(client: openai.AsyncOpenAI) -> None:
    before = await create(client, "My name is Julia.")
    first, said = session(before), [("user", "My name is Julia."), ("assistant", before.output_text)]
    assert (first["state"], first["why"]) == ("new", "first-turn")
    ids = [before.id]
    for number in range(6):
        text = f"What is {number} plus {number}?"
        said.append(("user", text))
        response = await create(client, text, previous_response_id=ids[-1])
        told = session(response)
        assert (told["state"], told["id"], told["why"]) == ("continued", first["id"], "next-turn")
        assert told["appended"] == len(text_ids(f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"))
        assert response.usage is not None
        assert response.usage.input_tokens == len(prompt_ids(*said))
        assert response.usage.input_tokens_details.cached_tokens == told["reused"]
        said.append(("assistant", response.output_text))
        ids.append(response.id)
    told = session(await create(client, "And my name?", previous_response_id=ids[-2]))
    assert (told["state"], told["why"]) == ("forked", "earlier-place")
    told = session(await create(client, "And my name?", previous_response_id=ids[0]))
    assert (told["state"], told["why"]) == ("new", "not-found"), "its place is not kept any more"


async def test_what_is_sent_whole_goes_on_in_the_same_session(client: openai.AsyncOpenAI) -> None:
    conversation: list[Any] = [{"role": "user", "content": "Hello, I am Zoë."}]
    first = await create(client, conversation, store=False)
    conversation += [*first.output, {"role": "user", "content": "Who am I?"}]
    second = await create(client, conversation, store=False)
    assert (session(second)["state"], session(second)["id"]) == ("continued", session(first)["id"])


async def test_another_key_of_another_tenant_sees_none(client: openai.AsyncOpenAI, stack: HttpStack) -> None:
    response = await create(client, "Hello")
    async with openai.AsyncOpenAI(base_url=stack.base_url, api_key=stack.operator.make_key("another")) as stranger:
        for call in (stranger.responses.retrieve, stranger.responses.delete, stranger.responses.cancel):
            with pytest.raises(openai.NotFoundError):
                await call(response.id)
        with pytest.raises(openai.BadRequestError) as refused:
            await create(stranger, "And?", previous_response_id=response.id)
    assert (refused.value.param, refused.value.code) == ("previous_response_id", "previous_response_not_found")


async def test_what_is_refused(client: openai.AsyncOpenAI) -> None:
    response = await create(client, "Hello")
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.cancel(response.id)
    assert refused.value.code == "not_running"
    with pytest.raises(openai.BadRequestError) as refused:
        await create(client, "Hello", background=True)
    assert refused.value.param == "background"


async def test_a_conversation_keeps_the_turns(client: openai.AsyncOpenAI) -> None:
    conversation = await client.conversations.create(
        items=[{"type": "message", "role": "developer", "content": "Be brief."}], metadata={"topic": "names"}
    )
    assert await client.conversations.retrieve(conversation.id) == conversation
    first = await create(client, "Hello, I am Zoë.", conversation=conversation.id)
    second = await create(client, "Who am I?", conversation={"id": conversation.id})
    assert second.conversation is not None
    assert second.conversation.id == conversation.id
    assert (session(second)["state"], session(second)["id"]) == ("continued", session(first)["id"])
    items: list[Any] = [item async for item in client.conversations.items.list(conversation.id, limit=2, order="asc")]
    texts = [item.content[0].text for item in items]
    assert texts == ["Be brief.", "Hello, I am Zoë.", first.output_text, "Who am I?", second.output_text]
    assert (await client.conversations.items.retrieve(items[-1].id, conversation_id=conversation.id)) == items[-1]
    other = await create(client, "And in French?", previous_response_id=first.id)
    assert (other.conversation, session(other)["state"]) == (None, "forked")
    await client.conversations.items.delete(items[0].id, conversation_id=conversation.id)
    added = await client.conversations.items.create(
        conversation.id, items=[{"type": "message", "role": "user", "content": "Thanks."}]
    )
    assert [item.id async for item in client.conversations.items.list(conversation.id, order="asc")] == [
        *(item.id for item in items[1:]),
        added.data[0].id,
    ]
    noted = await client.conversations.update(conversation.id, metadata={"topic": "none"})
    assert noted.metadata == {"topic": "none"}
    assert (await client.conversations.delete(conversation.id)).deleted
    with pytest.raises(openai.NotFoundError) as refused:
        await create(client, "Hello", conversation=conversation.id)
    assert refused.value.code == "conversation_not_found"


async def test_streams_in_one_conversation_at_once(client: openai.AsyncOpenAI) -> None:
    """None loses what another has said."""
    conversation = await client.conversations.create()

    async def say(number: int) -> str:
        asked: Any = {"model": MODEL, "input": f"{number}?", "conversation": conversation.id, "max_output_tokens": 40}
        async with client.responses.stream(**asked, temperature=0) as stream:
            return (await stream.get_final_response()).output_text

    answers = await asyncio.gather(*map(say, range(4)))
    items: list[Any] = [item async for item in client.conversations.items.list(conversation.id, order="asc")]
    texts = [item.content[0].text for item in items]
    said = sorted(zip(texts[::2], texts[1::2], strict=True))
    assert said == [(f"{number}?", answer) for number, answer in enumerate(answers)]


async def test_another_tenant_sees_no_conversation(client: openai.AsyncOpenAI, stack: HttpStack) -> None:
    conversation = await client.conversations.create(items=[{"type": "message", "role": "user", "content": "Hello"}])
    async with openai.AsyncOpenAI(base_url=stack.base_url, api_key=stack.operator.make_key("third")) as stranger:
        for call in (stranger.conversations.retrieve, stranger.conversations.delete, stranger.conversations.items.list):
            with pytest.raises(openai.NotFoundError):
                await call(conversation.id)
        with pytest.raises(openai.NotFoundError):
            await create(stranger, "And?", conversation=conversation.id)
