"""Open Responses' compliance tests: what they ask for and demand, written anew, on types of its 2026-04-24 document.

As of commit 0cb939cc of github.com/openresponses/openresponses (src/lib/compliance-tests.ts). What is answered has to
be a `ResponseResource`, and each event of a stream one of its events, by the types of another project.
docs/responses.md tells how many pass.
"""

from collections.abc import Iterable
from typing import Any, Final

import openresponses_types as spec
import pytest

from tests.unit.http_shim.responses_api.asking import ask, named
from tests.unit.http_shim.responses_api.test_response_tools import ONE, WEATHER_TOOL, caller, calling_dir
from tests.unit.http_shim.shim import Shim

__all__ = ["caller", "calling_dir"]

_EVENTS: Final[dict[str, Any]] = {
    next(iter(kind.model_fields["type"].annotation)).value: kind
    for name, kind in vars(spec).items()
    if name.endswith("StreamingEvent")
}


def message(role: str, content: Any) -> Any:
    return {"type": "message", "role": role, "content": content}


WEATHER: Final = [message("user", "What is the weather in Oslo?")]
TOOLS: Final = [{key: value for key, value in WEATHER_TOOL.items() if key != "strict"}]
CASES: Final = [
    pytest.param([message("user", "Greet me in three words.")], [], "Hello to you", id="basic-response"),
    pytest.param(
        [message("system", "You are a pirate."), message("user", "Say hello.")], [], "Ahoy", id="system-prompt"
    ),
    pytest.param(WEATHER, TOOLS, ONE, id="tool-calling"),
    pytest.param(
        [message("user", "I am Alice."), message("assistant", "Hello Alice!"), message("user", "Who am I?")],
        [],
        "Alice",
        id="multi-turn",
    ),
]
STREAMED: Final = [
    pytest.param([message("user", "Count to five.")], [], "1 2 3 4 5", id="streaming-response"),
    pytest.param(WEATHER, TOOLS, ONE, id="tool-calling-streaming"),
]


def kinds(output: Iterable[Any]) -> list[str]:
    return [item.type for item in output]


@pytest.mark.parametrize(("items", "tools", "text"), CASES)
async def test_a_whole_answer(caller: Shim, items: Any, tools: Any, text: str) -> None:
    caller.will_say(text)
    response = await ask(caller, input=items, tools=tools, max_output_tokens=500)
    assert response.status_code == 200, response.text
    resource = spec.ResponseResource.model_validate_json(response.content)
    assert resource.status == "completed"
    assert kinds(resource.output) == ["function_call" if tools else "message"]


@pytest.mark.parametrize(("items", "tools", "text"), STREAMED)
async def test_a_stream(caller: Shim, items: Any, tools: Any, text: str) -> None:
    caller.will_say(text)
    response = await ask(caller, input=items, tools=tools, stream=True, max_output_tokens=500)
    told = named(response.text)
    for event in told:
        _EVENTS[event["type"]].model_validate(event)
    resource = spec.ResponseResource.model_validate(told[-1]["response"])
    assert (resource.status, kinds(resource.output)) == ("completed", ["function_call" if tools else "message"])
    if tools:
        of_call = [
            event["type"].removeprefix("response.")
            for event in told
            if event.get("item", {"type": "function_call"})["type"] == "function_call"
        ]
        assert (of_call[2], of_call[-2]) == ("output_item.added", "output_item.done")
        assert {"function_call_arguments.delta", "function_call_arguments.done"} <= {*of_call}


async def test_an_image_is_refused_by_name(caller: Shim) -> None:
    """The one of them that fails: contents are texts."""
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    asked = [message("user", [{"type": "input_text", "text": "What is it?"}, image])]
    response = await ask(caller, input=asked)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (
        400,
        "input[0].content[1].type",
        "unsupported_parameter",
    )
