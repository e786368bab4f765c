"""A conversation as most clients hold it: with each turn all of it is sent again."""

from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.unit.http_shim.shim import Shim


@dataclass(frozen=True)
class Told:
    """What an answer says of its session."""

    state: str
    id: str
    appended: int
    reused: int
    why: str

    @classmethod
    def by(cls, response: httpx.Response) -> "Told":
        """Its header."""
        assert response.status_code == 200, response.text
        state, *pairs = response.headers["kakeya-session"].split("; ")
        said = dict(pair.split("=", 1) for pair in pairs)
        assert list(said) in (["id", "appended", "reused", "why"], ["appended", "reused", "why"])
        return cls(state, said.get("id", ""), int(said["appended"]), int(said["reused"]), said["why"])

    @property
    def short(self) -> tuple[str, str]:
        return self.state, self.why


@dataclass
class Talk:
    """One conversation."""

    shim: Shim
    messages: list[dict[str, Any]] = field(default_factory=list)

    async def says(self, text: str, answer: str = "Yes.", *, ends: bool = True, **fields: Any) -> Told:
        """The person says this, and the model will answer that."""
        self.messages.append({"role": "user", "content": text})
        return await self.asks(answer, ends=ends, **fields)

    async def asks(self, answer: str = "Yes.", *, ends: bool = True, headers: Any = None, **fields: Any) -> Told:
        """For an answer to what was said."""
        self.shim.will_say(answer, ends=ends)
        body = {"messages": self.messages, "max_tokens": 50, **fields}
        response = await self.shim.http.post("/v1/chat/completions", json=body, headers=headers)
        told = Told.by(response)
        usage = response.json()["usage"]
        assert usage["prompt_tokens"] == told.appended + told.reused
        assert usage["prompt_tokens_details"]["cached_tokens"] == told.reused
        assert usage["kakeya"]["session"] == {**vars(told)} or not told.id
        message = response.json()["choices"][0]["message"]
        self.messages.append({"role": "assistant", "content": message["content"]})
        return told

    def history(self, told: Told) -> str:
        """What the session holds, control tokens in their spelling."""
        return self.shim.tokenizer.decode(self.shim.runtime.sessions[told.id].history, special_tokens=True)

    def written(self, *, ends: bool = True) -> str:
        """The conversation as the chat template writes it, without a beginning of another answer."""
        text = self.shim.tokenizer.render(self.messages, end="message")
        return text.removesuffix("\n") if ends else text.removesuffix("<|im_end|>\n")
