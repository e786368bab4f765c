"""One tree of responses: each goes on from one that was drawn of those that are there."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.integration.open_http import MODEL
from tests.soak.histories_http.asking import Answer, Ask, Refusal
from tests.soak.histories_http.histories import Message, user
from tests.soak.report import Tally
from tests.soak.responses_http.asking import PATH, Client, Told

MAX_TOKENS = 12
_INSTRUCTIONS = "Be brief."
_NUM_TURNS = (3, 9)
_UNUSED_SEED = 1 << 62
"""Answers are greedy, and no session has it: this API has no seed."""
Look = Callable[[Ask, Answer], Awaitable[None]]
Expire = Callable[[str, str], Awaitable[None]]


@dataclass(frozen=True)
class Node:
    """A response.

    Attributes:
        messages: of the conversation that it ends.
    """

    id: str
    messages: list[Message]


@dataclass
class Tree:
    """Grows by a client's requests.

    Attributes:
        other: a client of another tenant, for whom none of it exists.
        look: judges an answer.
        expire: has a response of a tenant's expire now.
    """

    draw: random.Random
    client: Client
    other: Client
    look: Look
    expire: Expire
    tally: Tally
    _nodes: list[Node] = field(default_factory=list)

    async def grow(self) -> None:
        """All of it."""
        has_instructions = self.draw.random() < 0.3
        for _ in range(self.draw.randint(*_NUM_TURNS)):
            kind = self._kind()
            if kind == "twice at once":
                last = self._nodes[-1]
                await asyncio.gather(*(self._turn(kind, last, has_instructions) for _ in range(2)))
            elif kind in ("deleted", "expired"):
                await self._lose(kind)
            elif kind == "another tenant":
                await self._refused(self.other, kind, self.draw.choice(self._nodes).id)
            else:
                await self._turn(kind, self._behind(kind), has_instructions)

    def _kind(self) -> str:
        if not self._nodes:
            return "first"
        kinds = ("next", "fork", "twice at once", "deleted", "expired", "another tenant")
        return self.draw.choices(kinds, (5, 4, 2, 1, 1, 1))[0]

    def _behind(self, kind: str) -> Node | None:
        if kind == "first":
            return None
        return self._nodes[-1] if kind == "next" else self.draw.choice(self._nodes)

    async def _turn(self, kind: str, behind: Node | None, has_instructions: bool) -> None:
        said = user(self.draw)
        if not said["content"]:
            said = {"role": "user", "content": "Hello"}
        body: dict[str, Any] = {
            "model": MODEL,
            "input": said["content"],
            "temperature": 0,
            "max_output_tokens": MAX_TOKENS,
            "instructions": _INSTRUCTIONS if has_instructions else None,
            "previous_response_id": behind.id if behind else None,
        }
        response = await self._answered({name: value for name, value in body.items() if value is not None})
        if isinstance(response, Refusal):
            self.tally.count(kind, f"status {response.status}", response.code)
            self.tally.violate(f"{kind}: refused with {response}", kind=response.code)
            return
        system = [{"role": "system", "content": _INSTRUCTIONS}] if has_instructions and not behind else []
        messages = [*(behind.messages if behind else system), said]
        content = "".join(part["text"] for item in response["output"] for part in item["content"])
        fields = {"max_tokens": MAX_TOKENS, "temperature": 0, "seed": _UNUSED_SEED}
        await self.look(Ask(kind, self.client.tenant, MODEL, messages, fields), _answer(response, content))
        self._nodes.append(Node(response["id"], [*messages, {"role": "assistant", "content": content}]))

    async def _answered(self, body: dict[str, Any]) -> dict[str, Any] | Refusal:
        if self.draw.random() < 0.5:
            return await self.client.create(self.draw, body)
        told = await self.client.stream(self.draw, body, self.draw.randint(1, 2 * MAX_TOKENS))
        if isinstance(told, Refusal):
            return told
        return await self._looked_at(told)

    async def _looked_at(self, told: Told) -> dict[str, Any]:
        """What a stream has come to: what is stored is what was told."""
        self.tally.violate(*told.faults, kind="numbers")
        response = told.response or {}
        found = await self.client.call(self.draw, "GET", f"{PATH}/{response['id']}")
        if found.json() != response:
            self.tally.violate(f"stored is {found.text}, told was {response}", kind="stored")
        text = "".join(part["text"] for item in response["output"] for part in item.get("content", ()))
        if told.text != text:
            self.tally.violate(f"told was {told.text!r}, and the answer is {text!r}", kind="told")
        self.tally.kinds["resumed"] += told.num_resumed
        return response

    async def _lose(self, kind: str) -> None:
        """One is not there any more; what was asked behind it is."""
        node = self._nodes.pop(self.draw.randrange(len(self._nodes)))
        if kind == "deleted":
            await self.client.call(self.draw, "DELETE", f"{PATH}/{node.id}")
        else:
            await self.expire(self.client.tenant, node.id)
        await self._refused(self.client, kind, node.id)

    async def _refused(self, client: Client, kind: str, response_id: str) -> None:
        body = {"model": MODEL, "input": "Hello", "previous_response_id": response_id, "max_output_tokens": 1}
        answer = await client.create(self.draw, body)
        code = answer.code if isinstance(answer, Refusal) else "answered"
        self.tally.count(kind, code, code)
        if code != "previous_response_not_found":
            self.tally.violate(f"{kind}: {answer}", kind=kind)
        for method, path in (("GET", PATH), ("GET", f"{PATH}/{response_id}/input_items")):
            where = path if path.endswith("items") else f"{path}/{response_id}"
            found = await client.call(self.draw, method, where)
            if found.status_code != 404:
                self.tally.violate(f"{kind}: {method} {where} is {found.status_code}", kind=kind)


def _answer(response: dict[str, Any], content: str) -> Answer:
    """As a chat's, which the judge knows."""
    usage = response["usage"]
    session = usage["kakeya"]["session"]
    told = {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "prompt_tokens_details": usage["input_tokens_details"],
        "kakeya": {"session": session},
    }
    header = {**session, "appended": str(session["appended"]), "reused": str(session["reused"])}
    return Answer(content, "length" if response["status"] == "incomplete" else "stop", header, told)
