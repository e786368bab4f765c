"""Streams of stored responses, gone on with behind any event, also where the shim that told them was killed."""

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import openai
import pytest
from openai.types.responses import ResponseStreamEvent

from tests.integration.http_stack import HttpStack, http_stack
from tests.integration.open_http import MODEL
from tests.integration.processes import Process

QUESTION = "Tell me a story about a cat."
NUM_TOKENS = 24
MANY_TOKENS = 50_000
"""Minutes of an answer."""
OWN = ("id", "item_id", "created_at", "completed_at", "usage")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpStack]:
    with http_stack(tmp_path_factory.mktemp("resumed"), "--live-sessions", "on") as made:
        yield made


def client_of(stack: HttpStack, shim: Process) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"http://{shim.address}/v1", api_key=stack.key, max_retries=0)


@pytest.fixture
async def client(stack: HttpStack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(stack, stack.shim) as client:
        yield client


def without_ids(told: Any) -> Any:
    """An event as each stream of the same answer has it."""
    if isinstance(told, dict):
        return {name: without_ids(value) for name, value in told.items() if name not in OWN}
    return [*map(without_ids, told)] if isinstance(told, list) else told


def plain(events: list[ResponseStreamEvent]) -> list[Any]:
    return [without_ids(event.model_dump()) for event in events]


async def asked(client: openai.AsyncOpenAI, num_tokens: int = NUM_TOKENS, **fields: Any) -> Any:
    return await client.responses.create(
        model=MODEL, input=QUESTION, temperature=0, max_output_tokens=num_tokens, stream=True, **fields
    )


def response_id(events: list[ResponseStreamEvent]) -> str:
    first = events[0]
    assert first.type == "response.created"
    return first.response.id


async def rest_of(client: openai.AsyncOpenAI, events: list[ResponseStreamEvent]) -> list[ResponseStreamEvent]:
    """What comes behind the events that there are."""
    last = events[-1].sequence_number
    stream = await client.responses.retrieve(response_id(events), stream=True, starting_after=last)
    return [event async for event in stream]


async def test_a_stream_that_is_cut_at_every_event(client: openai.AsyncOpenAI) -> None:
    whole = [event async for event in await asked(client)]
    assert len(whole) > NUM_TOKENS // 2
    assert [event.sequence_number for event in whole] == [*range(len(whole))]
    for number in range(1, len(whole) + 1):
        assert await rest_of(client, whole[:number]) == whole[number:]
    for number in range(1, len(whole)):
        stream = await asked(client)
        events = []
        async for event in stream:
            events.append(event)
            if len(events) == number:
                break
        await stream.close()
        assert plain(events + await rest_of(client, events)) == plain(whole)


async def test_openais_stream_goes_on(client: openai.AsyncOpenAI) -> None:
    async with client.responses.stream(
        model=MODEL, input=QUESTION, temperature=0, max_output_tokens=NUM_TOKENS
    ) as all_of_it:
        whole = [event async for event in all_of_it]
        final = await all_of_it.get_final_response()
    async with client.responses.stream(response_id=final.id, starting_after=5) as behind:
        events = [event async for event in behind]
        assert (await behind.get_final_response()).output_text == final.output_text
    assert [event.sequence_number for event in events] == [*range(6, len(whole))]


async def test_a_shim_is_killed_in_the_middle(stack: HttpStack, client: openai.AsyncOpenAI) -> None:
    """The other one goes on with what it told, and with the conversation, also where that is the end of a response."""
    before = await client.responses.create(model=MODEL, input="My name is Ann.", temperature=0, max_output_tokens=4)
    for previous in (None, before.id):
        whole = [event async for event in await asked(client, store=False, previous_response_id=previous)]
        for number in (1, len(whole) // 2, len(whole) - 1):
            await killed_behind(stack, client, number, whole, previous)


async def test_a_session_that_ends_with_its_answer_cannot_be_gone_on_with(
    stack: HttpStack, client: openai.AsyncOpenAI
) -> None:
    events = await told_before_the_kill(stack, 5, "off", MANY_TOKENS, extra_body={"ignore_eos": True})
    with pytest.raises(openai.APIError, match="lost"):
        await rest_of(client, events)
    found = await client.responses.retrieve(response_id(events))
    assert (found.status, found.error and found.error.code) == ("failed", "server_lost")


@pytest.mark.heavy
async def test_a_shim_is_killed_behind_every_event(stack: HttpStack, client: openai.AsyncOpenAI) -> None:
    whole = [event async for event in await asked(client, store=False)]
    for number in range(1, len(whole)):
        await killed_behind(stack, client, number, whole)


async def told_before_the_kill(
    stack: HttpStack, number: int, live: str, num_tokens: int = NUM_TOKENS, **fields: Any
) -> list[ResponseStreamEvent]:
    """So many events of a stream, whose shim is killed then: before its end for certain where that has MANY_TOKENS.

    It is read on to where it is torn off, and what came by then is passed over: generators that are left are closed by
    whichever thread collects garbage.
    """
    shim = stack.runtime.start_http("--live-sessions", live)
    events: list[ResponseStreamEvent] = []
    async with client_of(stack, shim) as doomed:
        with suppress(openai.APIConnectionError):
            async for event in await asked(doomed, num_tokens, **fields):
                events.append(event)
                if len(events) == number:
                    shim.kill()
    return events[:number]


async def killed_behind(
    stack: HttpStack,
    client: openai.AsyncOpenAI,
    number: int,
    whole: list[ResponseStreamEvent],
    previous: str | None = None,
) -> None:
    """The rest of a stream whose shim is killed once so many events have come."""
    events = await told_before_the_kill(stack, number, "on", previous_response_id=previous)
    events += await rest_of(client, events)
    kept = await client.responses.retrieve(response_id(events))
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    assert last.response == kept
    expected, told = plain(whole), plain(events)
    for event in expected:
        if "response" in event:
            event["response"]["store"] = True
    assert told == expected
    again = await client.responses.create(
        model=MODEL, input="And then?", previous_response_id=kept.id, max_output_tokens=1
    )
    assert again.usage is not None
    assert again.usage.input_tokens_details.cached_tokens > 0


async def test_one_that_nobody_goes_on_with_is_settled(stack: HttpStack) -> None:
    events = await told_before_the_kill(stack, 3, "on", MANY_TOKENS, extra_body={"ignore_eos": True})
    other = stack.runtime.start_http("--live-sessions", "on", "--response-linger-seconds", "0")
    async with client_of(stack, other) as client:
        found = await client.responses.retrieve(response_id(events))
        while found.status == "in_progress":
            found = await client.responses.retrieve(found.id)
        assert (found.status, found.error and found.error.code) == ("failed", "server_lost")
        with pytest.raises(openai.APIError, match="lost"):
            await rest_of(client, events)
