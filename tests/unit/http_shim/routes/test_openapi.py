"""The OpenAPI document says what the server does; the fuzzing of the server by it is `make fuzz-http`."""

from collections.abc import Iterator
from typing import Any

from kakeya_http_shim.answers.chat_answer import ChatChunk, ChatCompletion
from kakeya_http_shim.answers.completion_answer import Completion
from kakeya_http_shim.messages_api.answer_events import MessagesError
from kakeya_http_shim.ollama_api.answer_lines import OllamaError
from kakeya_http_shim.responses_api.kept.kept_conversation import KeptConversation
from kakeya_http_shim.responses_api.kept.kept_items import KeptItems
from kakeya_http_shim.responses_api.kept.kept_response import KeptResponse
from kakeya_http_shim.routes.openapi.operations import ErrorAnswer
from tests.unit.http_shim.shim import CHAT, COMPLETIONS, Shim

RESPONSE = f"resp_{'0' * 32}"
CONVERSATION = f"conv_{'0' * 32}"
ITEM = {"id": "msg_1", "type": "message"}


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(part, list):
        for each in part:
            yield from references(each)


async def test_every_route_is_in_it_and_every_reference_is_there(shim: Shim) -> None:
    document = (await shim.http.get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    schemas = document["components"]["schemas"]
    assert {reference.removeprefix("#/components/schemas/") for reference in references(document)} <= schemas.keys()
    names = {"/v1/responses": RESPONSE, "/v1/conversations": CONVERSATION}
    kept = KeptConversation(1, {}, [ITEM])
    for path, operations in document["paths"].items():
        for method in operations:
            shim.runtime.objects |= {RESPONSE: KeptResponse({}, KeptItems()).packed(), CONVERSATION: kept.packed()}
            shim.runtime.object_versions[CONVERSATION] = 1
            name = next((name for start, name in names.items() if path.startswith(start)), "counter")
            response = await shim.http.request(method, path.replace("{id}", name).replace("{item_id}", ITEM["id"]))
            assert response.status_code not in (404, 405), path
    operations = [each for path in document["paths"].values() for each in path.values()]
    assert len({each["operationId"] for each in operations}) == len(operations)


async def test_answers_are_as_described(shim: Shim) -> None:
    shim.will_say("Hi", "Hi", "Hi", "Hi")
    ChatCompletion.model_validate_json((await shim.chat(logprobs=True, top_logprobs=1)).content, strict=True)
    Completion.model_validate_json((await shim.complete(logprobs=1)).content, strict=True)
    for event in (await shim.events(CHAT, stream_options={"include_usage": True}))[:-1]:
        ChatChunk.model_validate(event, strict=True)
    for event in (await shim.events(COMPLETIONS, stream_options={"include_usage": True}))[:-1]:
        Completion.model_validate(event, strict=True)
    ErrorAnswer.model_validate_json((await shim.chat(n=0)).content, strict=True)


async def test_errors_of_messages_are_as_described(shim: Shim) -> None:
    document = (await shim.http.get("/openapi.json")).json()
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        MessagesError.model_validate_json((await shim.http.post(path, json={})).content, strict=True)
        operation = document["paths"][path]["post"]
        failures = [response for status, response in operation["responses"].items() if status != "200"]
        shapes = {response["content"]["application/json"]["schema"]["$ref"] for response in failures}
        assert shapes == {"#/components/schemas/MessagesError"}
        assert {"apiKey": []} in operation["security"]


async def test_what_ollamas_api_answers_is_as_described(shim: Shim) -> None:
    document = (await shim.http.get("/openapi.json")).json()
    for path, line in (("/api/chat", "ChatLine"), ("/api/generate", "GenerateLine")):
        OllamaError.model_validate_json((await shim.http.post(path, json={})).content, strict=True)
        operation = document["paths"][path]["post"]
        assert operation["responses"]["200"]["content"].keys() == {"application/json", "application/x-ndjson"}
        alternatives = operation["responses"]["200"]["content"]["application/x-ndjson"]["schema"]["anyOf"]
        assert alternatives == [{"$ref": f"#/components/schemas/{each}"} for each in (line, "OllamaError")]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            failures = [response for status, response in operation["responses"].items() if status != "200"]
            shapes = {response["content"]["application/json"]["schema"]["$ref"] for response in failures}
            assert (shapes == {"#/components/schemas/OllamaError"}) == path.startswith("/api/")


async def test_it_says_which_statuses_bring_a_retry_after(shim: Shim) -> None:
    document = (await shim.http.get("/openapi.json")).json()
    responses = document["paths"][CHAT]["post"]["responses"]
    with_it = [status for status, response in responses.items() if "Retry-After" in response.get("headers", ())]
    assert with_it == ["429", "503"]


async def test_an_event_is_described_as_the_object_that_it_is(shim: Shim) -> None:
    document = (await shim.http.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    for path, name in ((CHAT, "ChatChunk"), (COMPLETIONS, "Completion")):
        content = document["paths"][path]["post"]["responses"]["200"]["content"]
        alternatives = content["text/event-stream"]["schema"]["anyOf"]
        assert alternatives == [{"$ref": f"#/components/schemas/{each}"} for each in (name, "ErrorAnswer")]
        required, known = set(schemas[name]["required"]), schemas[name]["properties"].keys()
        assert all(required <= event.keys() <= known for event in (await shim.events(path))[:-1])


async def test_whatever_a_request_asks_for_it_may_itself_be_at_fault(shim: Shim) -> None:
    document = (await shim.http.get("/openapi.json")).json()
    bad = [({"host": "elsewhere"}, b"", 400), ({"content-encoding": "br"}, b"x", 415), ({}, bytes(9 << 20), 413)]
    for headers, body, status in bad:
        response = await shim.http.request("GET", "/v1/models", headers=headers, content=body)
        assert response.status_code == status
        assert str(status) in document["paths"]["/v1/models"]["get"]["responses"]


async def test_what_chats_say_of_their_session_is_described(shim: Shim) -> None:
    chat = (await shim.http.get("/openapi.json")).json()["paths"][CHAT]["post"]
    assert [(each["name"], each["in"]) for each in chat["parameters"]] == [
        ("Kakeya-Session-Id", "header"),
        ("Kakeya-Session", "header"),
    ]
    assert "Kakeya-Session" in chat["responses"]["200"]["headers"]
    assert "409" in chat["responses"]
