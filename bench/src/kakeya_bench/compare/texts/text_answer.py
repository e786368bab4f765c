"""An answer to texts, as OpenAI's client reads it, and what the server says of its session."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from kakeya_bench.compare.completions import RivalFailed, in_one_line

_SAID = re.compile(
    r"(?P<state>[\w-]+);( id=[^;]*;)? appended=(?P<appended>\d+); reused=(?P<reused>\d+); why=(?P<why>\S+)"
)


@dataclass(frozen=True, slots=True)
class SessionSaid:
    """What a server says of the live session that it answered from.

    Attributes:
        state: continued, forked or new.
        why: it is that.
        num_appended: tokens that the request has added to it before the answer.
        num_reused: tokens that were there before.
    """

    state: str
    why: str
    num_appended: int
    num_reused: int

    @classmethod
    def of(cls, header: str | None) -> "SessionSaid | None":
        """What stands in `Kakeya-Session`; None where there is none. Raises RivalFailed where it has another form."""
        if header is None:
            return None
        found = _SAID.fullmatch(header)
        if found is None:
            raise RivalFailed(f"what it says of its session is not understood: {in_one_line(header)}")
        return cls(found["state"], found["why"], int(found["appended"]), int(found["reused"]))


@dataclass(slots=True)
class TextAnswer(ABC):
    """Grows event by event; moments are in seconds of `clock.now`.

    Attributes:
        asked_at: when the client was asked to send the messages.
        sent_at: when it had made a request of them, and began to send that.
        first_at: when the first text came; None where none did.
        done_at: when it was whole; 0 while it is not.
        text: all of it.
        session: what the server says of it; None where it says nothing.
        num_prompt_tokens, num_tokens, num_cached_tokens: of the whole conversation before the answer, of the answer,
            and those that needed no prefill, as the server counts them; None where it does not.
    """

    asked_at: float
    sent_at: float = 0.0
    first_at: float | None = None
    done_at: float = 0.0
    text: str = ""
    session: SessionSaid | None = None
    num_prompt_tokens: int | None = None
    num_tokens: int | None = None
    num_cached_tokens: int | None = None
    is_ended: bool = False

    @property
    @abstractmethod
    def num_appended_tokens(self) -> int | None:
        """What the request has added before the answer; None where the server does not say."""

    @abstractmethod
    def take(self, event: Any, moment: float) -> None:
        """An event, as the client has read it, and when it came. Raises RivalFailed where it says that all failed."""

    def _says(self, text: str | None, moment: float) -> None:
        if text:
            self.first_at = moment if self.first_at is None else self.first_at
            self.text += text
