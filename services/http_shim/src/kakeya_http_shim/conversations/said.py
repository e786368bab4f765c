"""What a client is told of the session that its answer came from."""

from dataclasses import dataclass
from typing import Final, Literal

SESSION_HEADER: Final = "kakeya-session"
SESSION_ID_HEADER: Final = "kakeya-session-id"

State = Literal["continued", "forked", "new"]

Why = Literal[
    "next-turn",  # the conversation goes on where its session ends
    "regenerated",  # the last answer is asked for once more, or one that never came
    "cut-answer",  # the last answer was cut: it is appended as the client sent it
    "earlier-place",  # the session has gone on since, in another way
    "edited",  # a message is not what it was
    "busy",  # the session is answering another request
    "head",  # another conversation begins with the same system messages
    "choice",  # one of several answers
    "first-turn",  # nothing was answered yet
    "compacted",  # the session of what was compacted is gone: what it still saw is prefilled, and the bits are new
    "not-found",  # no session holds this conversation, or not any more
    "template",  # the chat template writes what was said before in another way by now
    "full",  # the session refuses to forget, and has no room
    "gone",  # the session ended in this moment
    "asked",  # the request insists on a new one
    "off",  # this server, the runtime or this kind of request has no live sessions
]


@dataclass(frozen=True, slots=True)
class Said:
    """Which session an answer came from, and what that cost.

    Attributes:
        session_id: "" of a session that ends with its answer.
        num_appended: tokens that the request has added to its history.
        num_reused: tokens that were there before.
    """

    state: State
    session_id: str
    num_appended: int
    num_reused: int
    why: Why

    @property
    def header(self) -> str:
        """Of `Kakeya-Session`."""
        session = f" id={self.session_id};" if self.session_id else ""
        return f"{self.state};{session} appended={self.num_appended}; reused={self.num_reused}; why={self.why}"
