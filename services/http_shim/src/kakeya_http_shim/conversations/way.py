"""Where a chat request gets its answer: in which session, and behind which tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kakeya_http_shim.conversations.said import Said, State, Why
from kakeya_http_shim.models.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Search:
    """What the turn itself looks for, where a way is no more than likely.

    Attributes:
        tags: the deepest place first.
        expected: by the index of its tag, how many of the prompt's tokens lie before a place.
        opens: a session, where none is found.
    """

    tags: Sequence[bytes]
    expected: Mapping[int, int]
    opens: bool


@dataclass(frozen=True, slots=True)
class Way:
    """How a request comes to the beginning of its answer.

    Attributes:
        state: as it will be unless another request comes in between.
        prompt: the tokens to append.
        source: id of the session that it goes on in, or branches off from; "" of one that is new.
        place: tokens of that session's history before those of the prompt.
        source_length: of its whole history.
        rewinds: what is behind the place is taken back first, if no tag names it.
        is_branch: the source itself is not to go on.
        parks_source: it is not needed any more, once the answer's session is there.
        num_reused: tokens that were there before the request; fewer than `place` where it has made its own head.
        search: None: it is certain.
    """

    state: State
    why: Why
    prompt: Prompt
    source: str = ""
    place: int = 0
    source_length: int = 0
    rewinds: bool = False
    is_branch: bool = False
    parks_source: bool = False
    num_reused: int = 0
    search: Search | None = None

    @property
    def answer_start(self) -> int:
        """Tokens of the history before the answer."""
        return self.place + len(self.prompt.token_ids)

    @property
    def is_known(self) -> bool:
        """Whether other requests find its session from its first moment: a fork has the tags of what it begins with."""
        return bool(self.source) and not self.is_branch

    def said(self, session_id: str) -> Said:
        return Said(self.state, session_id, self.answer_start - self.num_reused, self.num_reused, self.why)
