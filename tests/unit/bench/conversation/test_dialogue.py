"""One user of a runtime: which session answers, what is timed."""

from itertools import count

import pytest

from kakeya import AppendResult, AsyncClient, GenerateResult
from kakeya.errors import KakeyaError
from kakeya_bench.conversation.dialogue import Answer, Dialogue, closed_in_the_end
from kakeya_bench.conversation.speech import Speech
from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.bench.conversation.playing import OwnClock, PlainSettings, appended
from tests.unit.sdk.scripted_runtime import VOCAB_SIZE, ScriptedRuntime, fails


def dialogue(client: AsyncClient, conversation: int = 0) -> Dialogue:
    settings = PlainSettings.parse(["--random-tokens", "3", "--max-tokens", "4"])
    return Dialogue(client, Speech(settings, None, None, VOCAB_SIZE), count(conversation, 10), label="a test")


@pytest.mark.parametrize(
    ("arrived", "first", "each"), [([], None, None), ([0.5], 0.5, None), ([0.5, 0.75, 2.0], 0.5, 0.75)]
)
def test_times_of_an_answer(arrived: list[float], first: float | None, each: float | None) -> None:
    appended, done = AppendResult.from_wire(pb.AppendTokensResponse()), GenerateResult.from_wire(pb.GenerateDone())
    answer = Answer([1] * len(arrived), arrived, 3.0, appended, done)
    assert (answer.time_to_first_token_seconds, answer.time_per_output_token_seconds) == (first, each)


async def test_an_answer_is_timed_as_its_tokens_come(runtime: ScriptedRuntime, own_clock: OwnClock) -> None:
    runtime.before["AppendTokens"] += [own_clock.takes(5.0)]
    async with AsyncClient(runtime.address) as client:
        user = dialogue(client)
        message = await user.message()
        own_clock.tick_seconds = 1.0
        answer = await user.answer(message)
    assert answer.token_ids == [(message[-1] + step) % VOCAB_SIZE for step in range(1, 5)]
    assert (answer.arrived_seconds, answer.wall_seconds) == ([6.0, 7.0, 8.0, 9.0], 10.0)
    assert answer.done.history_length == 7


@pytest.mark.parametrize("reason", ["SESSION_NOT_FOUND", "WORKER_LOST", "INVARIANT_VIOLATED", "SESSION_CLOSED"])
async def test_who_lost_a_session_says_something_else_in_another(runtime: ScriptedRuntime, reason: str) -> None:
    async with AsyncClient(runtime.address) as client:
        user = dialogue(client, 3)
        first = await user.message()
        runtime.before["AppendTokens"] += [fails(reason)]
        with pytest.raises(KakeyaError) as lost:
            await user.answer(first)
        user.forget(lost.value)
        assert user.session is None
        second = await user.message()
        assert second != first
        await user.answer(second)
        user.forget(ValueError("of no session"))
        assert user.session is not None
    assert [request.client_label for request in runtime.requests["CreateSession"]] == ["a test"] * 2
    assert appended(runtime, "counter.1") == [second]


async def test_all_are_closed_although_one_cannot_be(runtime: ScriptedRuntime) -> None:
    told: list[str] = []
    runtime.before["CloseSession"] += [fails("INTERNAL")]
    async with AsyncClient(runtime.address) as client:
        users = [dialogue(client) for _ in range(3)]
        async with closed_in_the_end(users, told.append):
            for user in users[:2]:
                await user.open()
    assert told == ["Internal: scripted INTERNAL"]
    assert len(runtime.sessions) == 1, "the other one is closed, and the third was never opened"
