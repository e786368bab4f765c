"""A client's conversation, what an answer says of its session, and what that has to be."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.integration.open_http import ENDLESS
from tests.soak.histories_http.oracle import tokenizer

Message = dict[str, str]
NEXT, FIRST, AGAIN = ("continued", "next-turn"), ("new", "first-turn"), "regenerated"


def asked(num_tokens: int) -> dict[str, Any]:
    """The fields of a request whose answer has so many tokens, the likeliest ones."""
    return {"max_tokens": num_tokens, "logit_bias": ENDLESS, "temperature": 0}


@cache
def num_tokens(text: str) -> int:
    """By the model's tokenizer itself."""
    return len(tokenizer().encode(text).ids)


def num_behind(text: str) -> int:
    """Tokens of what the chat template writes behind an answer that max_tokens cut, where this is said then."""
    return num_tokens(f"<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")


def num_whole(messages: list[Message]) -> int:
    """Tokens of a conversation as the chat template writes it, with the beginning of an answer."""
    said = "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in messages)
    return len(tokenizer().encode(f"{said}<|im_start|>assistant\n").ids)


@dataclass(frozen=True, slots=True)
class Told:
    """An answer.

    Attributes:
        state, id, appended, reused, why: as the header says them.
        num_tokens: of the answer.
    """

    state: str
    id: str
    appended: int
    reused: int
    why: str
    content: str
    num_tokens: int

    @classmethod
    def of(cls, headers: Mapping[str, str], content: str, usage: Mapping[str, Any]) -> "Told":
        """Raises AssertionError where header and usage contradict each other."""
        state, *pairs = headers["kakeya-session"].split("; ")
        said: dict[str, Any] = dict(pair.split("=", 1) for pair in pairs)
        said |= {"state": state, "appended": int(said["appended"]), "reused": int(said["reused"])}
        assert usage["kakeya"]["session"] == said, f"{usage} beside {said}"
        assert usage["prompt_tokens"] == said["appended"] + said["reused"], f"{usage} beside {said}"
        assert usage["prompt_tokens_details"]["cached_tokens"] == said["reused"], f"{usage} beside {said}"
        return cls(**said, content=content, num_tokens=usage["completion_tokens"])

    @property
    def way(self) -> tuple[str, str]:
        return self.state, self.why


@dataclass
class Talk:
    """As its client has it, which sends it whole with each turn.

    Attributes:
        session_id: where its last answer came from.
        length: tokens of that session behind the answer.
        num_answers: so far.
        heard_at: when the last one came, on the clock that never goes back.
    """

    number: int
    messages: list[Message] = field(default_factory=list)
    session_id: str = ""
    length: int = 0
    num_answers: int = 0
    heard_at: float = 0.0

    def says(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def hears(self, told: Told) -> None:
        self.messages.append({"role": "assistant", "content": told.content})
        self.session_id = told.id
        self.length = told.appended + told.reused + told.num_tokens
        self.num_answers += 1
        self.heard_at = time.monotonic()

    @property
    def num_own(self) -> int:
        """Tokens of the last message, where it is appended behind an answer."""
        return num_behind(self.messages[-1]["content"])

    def faults(self, told: Told) -> Iterator[str]:
        """What is wrong with an answer that is not heard yet, whose session is as the one before it has left it, or
        is gone.
        """
        if told.state == "new":
            if (whole := num_whole(self.messages)) != told.appended:
                yield f"{told.appended} tokens appended to a new session, and the conversation has {whole}"
        elif told.way != NEXT:
            yield f"{told.state}, {told.why}"
        elif (told.id, told.reused, told.appended) != (self.session_id, self.length, self.num_own):
            yield f"not behind {self.length} tokens of {self.session_id}, or not {self.num_own} tokens"
