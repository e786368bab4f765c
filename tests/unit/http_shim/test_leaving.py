"""Clients that leave, and the end of the server: nothing stays behind."""

import asyncio
import json
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from tests.unit.http_shim.shim import CHAT, HELLO, Shim, data
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails, stalls

HEAD = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: "


async def send(shim: Shim, *, stream: bool, **fields: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A chat on a connection of its own, which a test can break off as it likes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", shim.port)
    body = json.dumps({"messages": HELLO, "stream": stream, **fields}).encode()
    writer.write(f"{HEAD}{len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    return reader, writer


async def has_come(shim: Shim, method: str, number: int = 1) -> None:
    await asyncio.to_thread(shim.runtime.wait_for, lambda: len(shim.runtime.requests[method]) >= number)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("method", ["CreateSession", "AppendTokens"])
async def test_leaving_before_the_first_token(shim: Shim, method: str, stream: bool) -> None:
    shim.runtime.before[method].append(stalls)
    _, writer = await send(shim, stream=stream)
    await has_come(shim, method)
    writer.close()
    if method == "AppendTokens":
        await has_come(shim, "CloseSession")
    await shim.nothing_left()
    assert not shim.runtime.requests["Generate"]


async def test_leaving_while_the_session_is_made(shim: Shim) -> None:
    answers = threading.Event()
    shim.runtime.after["CreateSession"].append(lambda context: (answers.wait(), None)[1])
    _, writer = await send(shim, stream=True)
    await has_come(shim, "CreateSession")
    writer.close()
    await gauge(shim, "in_flight_requests", 0)
    answers.set()
    await shim.nothing_left()


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("hold_after", [0, 2])
async def test_leaving_while_it_generates(shim: Shim, stream: bool, hold_after: int) -> None:
    shim.runtime.hold_after = hold_after
    _, writer = await send(shim, stream=stream)
    await has_come(shim, "Generate")
    writer.close()
    await has_come(shim, "CloseSession")
    await shim.nothing_left()
    await asyncio.to_thread(shim.runtime.wait_for, lambda: shim.runtime.num_cancelled == 1)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_an_answer_closes_its_session_itself(shim: Shim, stream: bool, n: int) -> None:
    assert (await shim.chat(stream=stream, n=n)).status_code == 200
    await shim.nothing_left()
    assert [request.ephemeral for request in shim.runtime.requests["CreateSession"]] == [True] * n
    assert not shim.runtime.requests["CloseSession"]


async def test_leaving_several_answers(shim: Shim) -> None:
    shim.runtime.hold_after = 1
    _, writer = await send(shim, stream=True, n=3)
    await has_come(shim, "Generate", 3)
    writer.close()
    await has_come(shim, "CloseSession", 3)
    await asyncio.to_thread(shim.runtime.wait_for, lambda: shim.runtime.num_cancelled == 3)


async def test_a_failure_ends_the_other_answers(shim: Shim) -> None:
    shim.runtime.hold_after = 1
    shim.runtime.before["AppendTokens"].append(lambda context: None)
    shim.runtime.before["AppendTokens"].append(fails("WORKER_LOST"))
    response = await shim.chat(n=2)
    assert response.status_code == 503
    await has_come(shim, "CloseSession", 2)
    await shim.nothing_left()


async def test_leaving_in_the_body(shim: Shim) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", shim.port)
    writer.write(f"{HEAD}100\r\n\r\n{{".encode())
    await writer.drain()
    await asyncio.sleep(0.1)
    writer.close()
    assert (await shim.chat(max_tokens=1)).status_code == 200


async def test_sending_more_and_leaving(shim: Shim) -> None:
    shim.runtime.hold_after = 1
    _, writer = await send(shim, stream=True)
    await has_come(shim, "Generate")
    writer.write(b"x" * 200_000)
    writer.close()
    await has_come(shim, "CloseSession")


async def test_leaving_the_line(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.hold_after = 1
    async with serving_shim(runtime, tokenizer_dir, "--max-in-flight", "1") as shim:
        _, first = await send(shim, stream=True)
        await has_come(shim, "Generate")
        _, second = await send(shim, stream=True)
        await gauge(shim, "waiting_requests", 1)
        second.close()
        await gauge(shim, "waiting_requests", 0)
        first.close()
        await gauge(shim, "in_flight_requests", 0)
        runtime.hold_after = None
        assert (await shim.chat(max_tokens=1)).status_code == 200


async def test_beyond_the_limit(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.hold_after = 1
    async with serving_shim(runtime, tokenizer_dir, "--max-in-flight", "1", "--admission", "reject") as shim:
        _, writer = await send(shim, stream=True)
        await has_come(shim, "Generate")
        response = await shim.chat()
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1
        assert response.json()["error"]["type"] == "rate_limit_error"
        await gauge(shim, 'rejected_requests_total{reason="busy"}', 1)
        writer.close()


async def test_a_client_that_reads_nothing(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--send-timeout-seconds", "0.3") as shim:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", shim.port))
            client.setblocking(False)
            body = json.dumps(
                {"messages": HELLO, "stream": True, "logprobs": True, "top_logprobs": 20, "max_tokens": 60_000}
            ).encode()
            client.send(f"{HEAD}{len(body)}\r\n\r\n".encode() + body)
            await has_come(shim, "Generate")
            await asyncio.to_thread(runtime.wait_for, lambda: runtime.num_cancelled == 1)
            await shim.nothing_left()
            await gauge(shim, "in_flight_requests", 0)


async def test_an_abort_in_mid_stream(shim: Shim) -> None:
    shim.runtime.hold_after = 2
    reader, writer = await send(shim, stream=True)
    await reader.readuntil(b"assistant")
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()
    await has_come(shim, "CloseSession")


async def test_the_end_of_the_server(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.hold_after = 2
    async with serving_shim(runtime, tokenizer_dir) as shim:
        stream = asyncio.create_task(shim.chat(stream=True, max_tokens=5))
        plain = asyncio.create_task(shim.chat(max_tokens=5))
        await has_come(shim, "Generate", 2)
        await asyncio.sleep(0.2)  # both tokens have come
        shim.stop.set()
        response = await plain
        assert (response.status_code, response.json()["error"]["code"]) == (503, "shutting_down")
        assert response.headers["retry-after"] == "1"
        assert data((await stream).text.splitlines())[-1]["error"]["code"] == "shutting_down"
        await shim.serving
    assert not runtime.sessions


async def test_what_ends_in_time_is_answered(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--shutdown-grace-seconds", "10") as shim:
        runtime.before["Generate"].append(lambda context: time.sleep(0.5))
        answer = asyncio.create_task(shim.chat(max_tokens=5))
        await has_come(shim, "Generate")
        shim.stop.set()
        assert (await answer).status_code == 200


async def test_a_session_that_cannot_be_closed(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.closes_itself = False
    async with serving_shim(runtime, tokenizer_dir) as shim:
        runtime.before["CloseSession"].append(fails("INTERNAL"))
        assert (await shim.chat(max_tokens=1)).status_code == 200, "its time to live ends it"


async def test_an_answer_does_not_wait_for_a_close_that_hangs(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.closes_itself = False
    async with serving_shim(runtime, tokenizer_dir) as shim:
        runtime.before["CloseSession"].append(stalls)
        async with asyncio.timeout(60):
            assert (await shim.chat(stream=True, max_tokens=1)).text.endswith("data: [DONE]\n\n")
        await gauge(shim, "in_flight_requests", 0)


async def test_a_router_that_is_gone_at_the_end(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.hold_after = 1
    async with serving_shim(runtime, tokenizer_dir) as shim:
        _, writer = await send(shim, stream=True)
        await has_come(shim, "Generate")
        runtime.before["CloseSession"].append(stalls)
        writer.close()
        await has_come(shim, "CloseSession")
        shim.stop.set()
        async with asyncio.timeout(60):
            await shim.serving


async def gauge(shim: Shim, name: str, value: int) -> None:
    """Returns when a metric has this value; fails after 20 s."""
    async with asyncio.timeout(60):
        while f"kakeya_http_{name} {value}.0" not in (await shim.http.get("/metrics")).text:
            await asyncio.sleep(0.02)
