"""POST /v1/responses, streamed: put together it is what the whole answer says."""

from pathlib import Path
from typing import Any

import pytest

from kakeya_http_shim.responses_api.response_events import RESPONSE_EVENTS
from tests.unit.http_shim.responses_api.asking import DONE, RESPONSES, answered, ask, events, named, put_together
from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

BY_TYPE = {event.model_fields["type"].default: event for event in RESPONSE_EVENTS}
OWN = ("id", "created_at", "completed_at")


def without_ids(response: Any) -> Any:
    """All but what each answer has of its own."""
    output = [{name: value for name, value in item.items() if name != "id"} for item in response["output"]]
    return {name: value for name, value in response.items() if name not in OWN} | {"output": output}


async def test_its_events(shim: Shim) -> None:
    shim.will_say("Hé!")
    told = await events(shim)
    for event in told:
        BY_TYPE[event["type"]].model_validate(event, strict=True)
    assert [event["type"].removeprefix("response.") for event in told] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * 3,
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert [event["delta"] for event in told if "delta" in event] == ["H", "é", "!"]
    assert (told[0]["response"]["usage"], told[2]["item"]["status"], told[2]["item"]["content"]) == (
        None,
        "in_progress",
        [],
    )


async def test_a_stream_ends_as_open_responses_says(shim: Shim) -> None:
    shim.will_say("Hi")
    assert (await ask(shim, stream=True)).text.endswith(f"\n\n{DONE}\n\n")


@pytest.mark.parametrize(("said", "fields"), [("Hi there!", {}), ("", {}), ("cut", {"max_output_tokens": 3})])
async def test_put_together_it_is_the_whole_answer(shim: Shim, said: str, fields: dict[str, Any]) -> None:
    shim.will_say(said, said)
    whole = await answered(shim, **fields)
    streamed = put_together(await events(shim, **fields))
    assert streamed["id"] != whole["id"]
    assert without_ids(streamed) == without_ids(whole)


async def test_a_failure_before_the_first_event_has_a_status(shim: Shim) -> None:
    shim.runtime.before["Generate"].append(fails("WORKER_LOST"))
    response = await ask(shim, stream=True)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json()["error"]["code"] == "worker_lost"


async def test_a_failure_in_mid_stream_fails_the_response(shim: Shim) -> None:
    shim.will_say("Hi", ends=False)
    shim.runtime.after["Generate"].append(fails("WORKER_LOST"))
    response = await ask(shim, stream=True, max_output_tokens=2)
    assert DONE not in response.text
    *_, error, failed = named(response.text)
    for event in (error, failed):
        BY_TYPE[event["type"]].model_validate(event, strict=True)
    assert (error["type"], failed["type"]) == ("error", "response.failed")
    flat = {name: error[name] for name in ("code", "message", "param")}
    assert error["error"] == {"type": "server_error", **flat}
    assert error["code"] == "worker_lost"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "worker_lost", "message": error["message"]}


async def test_signs_of_life(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.hold_after = 0
    flags = ("--keep-alive-comment-seconds", "0.05", "--response-linger-seconds", "0.1")
    async with serving_shim(runtime, tokenizer_dir, *flags) as shim:
        body = {"input": "Hello", "max_output_tokens": 5, "stream": True}
        said = ""
        async with shim.http.stream("POST", RESPONSES, json=body) as response:
            async for piece in response.aiter_text():
                said += piece
                if said.count(": keep-alive\n\n") == 3:
                    break
        assert [event["type"] for event in named(said)] == ["response.created", "response.in_progress"]
        await shim.nothing_left()
