"""The `openai` package, unmodified, sends whole conversations; each goes on in its session, with the same answers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from tests.integration.http_stack import HttpStack, http_stack, prompt_ids, text_ids
from tests.integration.open_http import ENDLESS, MODEL
from tests.integration.processes import eventually

LIVE = ("--live-sessions", "on")
SYSTEM = {"role": "system", "content": "Be brief."}
CUT: dict[str, Any] = {"max_tokens": 8, "logit_bias": ENDLESS}
"""An answer of so many tokens exactly."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpStack]:
    """Sessions make room for others: there are more of them than lanes."""
    directory = tmp_path_factory.mktemp("live")
    with http_stack(directory, *LIVE, KAKEYA_WORKER_SNAPSHOTS=str(directory / "snapshots")) as made:
        yield made


@pytest.fixture
async def client(stack: HttpStack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=stack.base_url, api_key=stack.key, max_retries=0) as client:
        yield client


@dataclass(frozen=True)
class Told:
    """What an answer says of its session."""

    state: str
    id: str
    appended: int
    reused: int
    why: str
    text: str

    @property
    def short(self) -> tuple[str, str]:
        return self.state, self.why


@dataclass
class Talk:
    """A conversation that is sent whole with each turn."""

    client: openai.AsyncOpenAI
    messages: list[Any] = field(default_factory=list)

    async def says(self, text: str, **fields: Any) -> Told:
        """Appends what is said, and the answer."""
        self.messages.append({"role": "user", "content": text})
        return await self.asks(**fields)

    async def asks(self, **fields: Any) -> Told:
        told = await self.answer(**fields)
        self.messages.append({"role": "assistant", "content": told.text})
        return told

    async def answer(self, **fields: Any) -> Told:
        """To what was said."""
        given = {"model": MODEL, "messages": self.messages, "temperature": 0, "max_tokens": 40, **fields}
        raw = await self.client.chat.completions.with_raw_response.create(**given)
        whole = raw.parse()
        session = whole.usage.kakeya["session"]
        assert raw.headers["kakeya-session"].startswith(f"{session['state']}; id={session['id']}; ")
        assert whole.usage.prompt_tokens == session["appended"] + session["reused"]
        assert whole.usage.prompt_tokens_details.cached_tokens == session["reused"]
        return Told(**session, text=whole.choices[0].message.content or "")

    @property
    def num_written(self) -> int:
        """Tokens of the conversation as the chat template writes it, with the beginning of an answer."""
        return len(prompt_ids(*((each["role"], each["content"]) for each in self.messages)))


def behind(text: str) -> int:
    """Tokens of what stands behind an answer where this is said then."""
    return len(text_ids(f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"))


async def test_thirty_turns_append_their_own_tokens(stack: HttpStack, client: openai.AsyncOpenAI) -> None:
    talk = Talk(client, [SYSTEM])
    first = await talk.says("My name is Julia.")
    assert first.short == ("new", "first-turn")
    for number in range(2, 31):
        talk.messages.append({"role": "user", "content": f"What is {number} plus {number}?"})
        num_written = talk.num_written
        told = await talk.asks()
        assert told.short == ("continued", "next-turn"), number
        assert (told.id, told.appended) == (first.id, behind(f"What is {number} plus {number}?"))
        assert told.appended + told.reused == num_written, "the history is the conversation, to the token"
    alone = stack.runtime.start_http("--live-sessions=off")
    async with openai.AsyncOpenAI(base_url=f"http://{alone.address}/v1", api_key=stack.key, max_retries=0) as other:
        answer = await other.chat.completions.create(
            model=MODEL, messages=talk.messages[:-1], temperature=0, max_tokens=40
        )
    assert answer.choices[0].message.content == talk.messages[-1]["content"], "as where all of it is prefilled anew"


@pytest.mark.parametrize("turn", [1, 2])
async def test_regenerating_appends_nothing(client: openai.AsyncOpenAI, turn: int) -> None:
    talk = Talk(client)
    for number in range(turn):
        first = await talk.says(f"Name {number + 2} animals, please, in turn {turn}.")
    del talk.messages[-1]
    again = await talk.asks()
    assert again.short == ("forked", "regenerated")
    assert (again.appended, again.text, again.id != first.id) == (0, first.text, True)
    told = await talk.says("Thanks!")
    assert (told.state, told.id) == ("continued", again.id)


async def test_an_edited_message_is_a_fork(client: openai.AsyncOpenAI) -> None:
    talk = Talk(client, [SYSTEM])
    for text in ("My car is red.", "I live in Oslo.", "Thanks!"):
        told = await talk.says(text)
    talk.messages[3]["content"] = "I live in Rome."
    del talk.messages[4:]
    edited = await talk.asks()
    assert edited.short == ("forked", "earlier-place")
    assert edited.id != told.id
    assert edited.appended == behind("I live in Rome.")
    assert (await talk.says("Where do I live?")).state == "continued"


async def test_answers_that_stop_texts_cut(client: openai.AsyncOpenAI) -> None:
    """As ReAct agents have it: each answer ends where the model begins to make up what a tool says."""
    talk = Talk(client, [SYSTEM])
    whole = await talk.says("Hello, how are you today?", **CUT)
    stop = whole.text[len(whole.text) // 2 :][:2]
    assert stop.strip()
    del talk.messages[-1]
    first = await talk.asks(**CUT, stop=stop)
    assert len(first.text) < len(whole.text)
    session_id = first.id
    for number in range(5):
        num_answer = len(text_ids(talk.messages[-1]["content"]))
        told = await talk.says(f"Observation: {number}", **CUT, stop=stop)
        assert (told.state, told.id) == ("continued", session_id), number
        if told.why == "cut-answer":
            assert told.appended == num_answer + 1 + behind(f"Observation: {number}")
        else:  # the stop text did not come up, and max_tokens cut the answer
            assert told.appended == 1 + behind(f"Observation: {number}")


async def test_an_answer_that_max_tokens_cut(client: openai.AsyncOpenAI) -> None:
    talk = Talk(client)
    first = await talk.says("Tell me a long story about a cat.", **CUT)
    told = await talk.says("Go on.")
    assert told.short == ("continued", "next-turn")
    assert (told.id, told.appended) == (first.id, 1 + behind("Go on."))


async def test_a_client_that_leaves_and_comes_again(client: openai.AsyncOpenAI) -> None:
    talk = Talk(client, [SYSTEM])
    first = await talk.says("Hello, I am Tom.")
    talk.messages.append({"role": "user", "content": "Tell me everything about ships."})
    given: Any = {"model": MODEL, "messages": talk.messages, "stream": True, "max_tokens": 400, "logit_bias": ENDLESS}
    stream = await client.chat.completions.create(**given)
    async for _ in stream:
        break
    await stream.close()
    again = await talk.asks(**CUT)
    assert again.appended == 0
    if again.state == "continued":
        assert again.why == "regenerated"
    else:  # it came before the answer had been stopped, and found that or met it
        assert (again.state, again.why in ("regenerated", "busy")) == ("forked", True)
    assert (again.id == first.id) == (again.state == "continued")
    assert (await talk.says("Well?")).state == "continued"


async def test_two_clients_at_one_place(client: openai.AsyncOpenAI) -> None:
    talk = Talk(client)
    first = await talk.says("Hello, I am Anna.")
    others = [Talk(client, talk.messages.copy()) for _ in range(2)]
    told = await asyncio.gather(*(each.says(f"Hello from {index}", **CUT) for index, each in enumerate(others)))
    assert sorted(each.state for each in told) == ["continued", "forked"]
    assert [each.id == first.id for each in told if each.state == "continued"] == [True]
    assert {each.appended for each in told} == {behind("Hello from 0")}
    for each in others:
        again = await each.says("And?")
        assert again.state == "continued"


async def test_another_key_finds_nothing(stack: HttpStack, client: openai.AsyncOpenAI) -> None:
    talk = Talk(client)
    first = await talk.says("Hello, I am Bob.")
    key = stack.operator.make_key("another")
    async with openai.AsyncOpenAI(base_url=stack.base_url, api_key=key, max_retries=0) as other:
        told = await Talk(other, talk.messages.copy()).says("And?")
    assert told.short == ("new", "not-found")
    assert told.id != first.id


async def test_several_answers(client: openai.AsyncOpenAI) -> None:
    talk = Talk(client)
    await talk.says("Hello, I am Zoe.")
    talk.messages.append({"role": "user", "content": "Name an animal."})
    raw = await client.chat.completions.with_raw_response.create(
        model=MODEL, messages=talk.messages, n=2, seed=11, temperature=1, max_tokens=24, logit_bias=ENDLESS
    )
    assert raw.headers["kakeya-session"].startswith("continued; ")
    first, second = (choice.message.content for choice in raw.parse().choices)
    assert first != second
    talk.messages.append({"role": "assistant", "content": first})
    assert (await talk.says("Thanks!")).state == "continued"


async def test_another_shim_goes_on(stack: HttpStack) -> None:
    first_shim, second_shim = (stack.runtime.start_http(*LIVE) for _ in range(2))
    messages: list[Any] = [SYSTEM]
    told = []
    for number, shim in enumerate((first_shim, second_shim, second_shim, first_shim)):
        if number == 2:
            first_shim.kill()
        if number == 3:
            shim = stack.runtime.start_http(*LIVE)
        async with openai.AsyncOpenAI(base_url=f"http://{shim.address}/v1", api_key=stack.key, max_retries=0) as client:
            told.append(await Talk(client, messages).says(f"Hello, number {number}."))
    assert [each.short for each in told] == [("new", "first-turn"), *[("continued", "next-turn")] * 3]
    assert len({each.id for each in told}) == 1


async def test_a_shim_that_is_killed_in_the_middle_of_an_answer(stack: HttpStack) -> None:
    shim, other = (stack.runtime.start_http(*LIVE) for _ in range(2))
    messages: list[Any] = [SYSTEM]
    async with openai.AsyncOpenAI(base_url=f"http://{shim.address}/v1", api_key=stack.key, max_retries=0) as client:
        first = await Talk(client, messages).says("Hello, I am Kim.")
        messages.append({"role": "user", "content": "Tell me everything about trains."})
        given: Any = {"model": MODEL, "messages": messages, "stream": True, "max_tokens": 400, "logit_bias": ENDLESS}
        stream = await client.chat.completions.create(**given)
        for _ in range(60):  # by then the place where the answer begins has its tag, for which nothing waits
            await anext(stream)
        shim.kill()
    async with openai.AsyncOpenAI(base_url=f"http://{other.address}/v1", api_key=stack.key, max_retries=0) as client:
        talk = Talk(client, messages)

        async def is_stopped() -> bool:
            told = await talk.answer(**CUT)
            assert told.appended == 0
            assert told.why == "regenerated"
            return told.id == first.id or told.state == "forked"

        await eventually(is_stopped, "the answer goes on elsewhere")
