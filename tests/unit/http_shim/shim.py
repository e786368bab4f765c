"""A whole shim for tests: served on a real socket, in front of a scripted runtime."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_http_shim.program import serve
from kakeya_http_shim.settings import HttpSettings
from tests.ports import free_port
from tests.read_once import read_once
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

MODEL = "counter"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]


@dataclass
class Shim:
    """What a test drives."""

    http: httpx.AsyncClient
    runtime: ScriptedRuntime
    tokenizer: ChatTokenizer
    serving: "asyncio.Task[None]"
    stop: asyncio.Event
    port: int

    def will_say(self, *texts: str, ends: bool = True) -> None:
        """The answers of the next generations, each with its end unless it is cut."""
        for text in texts:
            self.runtime.answers.append(self.tokens(text) + list(self.tokenizer.eos_token_ids) * ends)

    def tokens(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    async def chat(self, **fields: Any) -> httpx.Response:
        return await self.http.post(CHAT, json={"messages": HELLO, **fields})

    async def complete(self, **fields: Any) -> httpx.Response:
        return await self.http.post(COMPLETIONS, json={"prompt": "Once", **fields})

    async def events(self, path: str = CHAT, **fields: Any) -> list[Any]:
        """The data of a stream's events, `[DONE]` as a text."""
        question = {"prompt": "Once"} if path == COMPLETIONS else {"messages": HELLO}
        response = await self.http.post(path, json={**question, "stream": True, **fields})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return data(response.text.splitlines())

    async def loaded(self) -> None:
        """Returns when the tokenizers are loaded; fails after a minute."""
        async with asyncio.timeout(60):
            while '"loading"' in (await self.http.get("/readyz")).text:
                await asyncio.sleep(0.01)

    async def nothing_left(self) -> None:
        """Returns when the runtime has no session and no operation; fails after a minute."""
        await asyncio.to_thread(self.runtime.wait_for, lambda: not self.runtime.sessions)


def data(lines: Sequence[str]) -> list[Any]:
    """What the lines of a stream say."""
    said = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [text if text == "[DONE]" else json.loads(text) for text in said]


@asynccontextmanager
async def shim(runtime: ScriptedRuntime, tokenizer: Path, *flags: str) -> AsyncIterator[Shim]:
    """Served until the end of the context; without live sessions, unless the flags say otherwise."""
    if "--live-sessions" not in flags:
        flags = ("--live-sessions", "off", *flags)
    port = free_port()
    given = ("--tokenizer", f"{MODEL}={tokenizer}", "--shutdown-grace-seconds", "0.5", *flags)
    settings = read_once(HttpSettings.parse, *given).model_copy(
        update={"router": runtime.address, "bind": f"127.0.0.1:{port}"}
    )
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(settings, stop))
    try:
        # Nothing is over TLS here, and to read the certificates of all authorities takes 20 ms.
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, verify=False) as http:
            await _answering(http, serving)
            yield Shim(http, runtime, _loaded(str(tokenizer)), serving, stop, port)
    finally:
        stop.set()
        await serving


@cache
def _loaded(tokenizer: str) -> ChatTokenizer:
    return ChatTokenizer(tokenizer)


async def _answering(http: httpx.AsyncClient, serving: "asyncio.Task[None]") -> None:
    async with asyncio.timeout(60):
        while not serving.done():
            try:
                await http.get("/healthz")
            except httpx.TransportError:
                await asyncio.sleep(0.01)
            else:
                return
    await serving
