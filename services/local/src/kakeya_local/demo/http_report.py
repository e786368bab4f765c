"""What the demo was told over HTTP, and whether it is right."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kakeya_local.demo.http_exchange import Completion
from kakeya_local.demo.scripts import UNKNOWN
from kakeya_local.demo.turn import Turn


@dataclass(frozen=True)
class HttpTurn:
    """A turn over HTTP.

    Attributes:
        held: the turn at this place of the conversation over gRPC, in which the user said the same.
    """

    held: Turn
    completion: Completion

    @property
    def turn(self) -> Turn:
        """As one of the demo's, with what is judged in those."""
        # That what was told long ago is out of sight was proven over gRPC; it is here where as much was said since.
        held_prompt_tokens = self.held.history_length - self.held.generated_tokens
        hidden = not self.held.still_in_sight and self.completion.prompt_tokens >= held_prompt_tokens
        return replace(
            self.held,
            answer=self.completion.text,
            history_length=self.completion.history,
            forgotten_tokens=self.completion.evicted,
            still_in_sight=self.held.expected == UNKNOWN and not hidden,
        )

    @property
    def is_same(self) -> bool:
        """Whether the answer is the one over gRPC."""
        return self.completion.text == self.held.answer

    def summary(self) -> dict[str, object]:
        """For programs."""
        turn = self.turn
        return {
            "turn": turn.turn,
            "user": turn.user,
            **self.completion.figures(),
            "answer": turn.answer,
            "expected": turn.expected,
            "still_in_sight": turn.still_in_sight,
            "as_expected": turn.as_expected,
            "same_as_grpc": self.is_same,
        }


@dataclass(frozen=True)
class HttpReport:
    """A conversation that was gone on with over HTTP.

    Attributes:
        lane_tokens: what a session keeps.
        left_sessions: others that were still open some time after the last answer.
    """

    lane_tokens: int
    turns: Sequence[HttpTurn]
    left_sessions: Sequence[str] = ()

    @property
    def num_past_turns(self) -> int:
        """Held over gRPC alone, and brought along by the client."""
        return self.turns[0].held.turn - 1

    @property
    def is_live(self) -> bool:
        """Whether it was in a session that goes on from turn to turn."""
        return bool(self.turns[0].completion.session_id)

    def wrong_figures(self) -> list[str]:
        """A line for everything in `usage` that cannot be, and for every session that is left."""
        said = [(f"HTTP turn {each.held.turn}", each.completion) for each in self.turns]
        return [
            *wrong_figures(said, self.lane_tokens),
            *(f"session {session} is left over" for session in self.left_sessions),
        ]

    def expectations(self) -> list[Turn]:
        """The turns whose answers should hold something."""
        return [each.turn for each in self.turns if each.held.expected]

    def missed(self) -> list[Turn]:
        """Those of them whose answers do not."""
        return [turn for turn in self.expectations() if not turn.as_expected]

    def summary(self) -> dict[str, object]:
        """For programs."""
        return {
            "past_turns": self.num_past_turns,
            "lane_tokens": self.lane_tokens,
            "left_sessions": len(self.left_sessions),
            "turns": [each.summary() for each in self.turns],
        }


def wrong_figures(said: Sequence[tuple[str, Completion]], lane_tokens: int) -> list[str]:
    """A line for everything in `usage` that cannot be.

    Args:
        said: the answers of one conversation, each with the name of its turn.
        lane_tokens: what a session keeps.
    """
    is_live = bool(said and said[0][1].session_id)
    return [
        *(problem for turn, each in said if (problem := _wrong(turn, each, lane_tokens))),
        *(
            f"{turn}: {after.prompt_tokens} prompt tokens follow {before.prompt_tokens}, and nothing was taken back"
            for (_, before), (turn, after) in pairwise(said)
            if after.prompt_tokens <= before.prompt_tokens
        ),
        *(
            f"{turn}: its session is {after.session_state} and had {after.reused} tokens, of {before.history} that "
            "were there"
            for (_, before), (turn, after) in pairwise(said)
            if is_live and not goes_on(before, after)
        ),
    ]


def _wrong(turn: str, said: Completion, lane_tokens: int) -> str:
    history = said.prompt_tokens + said.completion_tokens
    retained = min(history, lane_tokens)
    if (said.history, said.retained, said.evicted) == (history, retained, history - retained):
        return ""
    return (
        f"{turn}: usage says {said.prompt_tokens} + {said.completion_tokens} tokens, history {said.history}, "
        f"retained {said.retained} and evicted {said.evicted}, in a lane of {lane_tokens}"
    )


def goes_on(before: Completion, after: Completion) -> bool:
    """Whether a turn appended its own tokens only, to all that was there."""
    is_same = (after.session_id, after.session_state) == (before.session_id, "continued")
    return is_same and after.reused == before.history and after.reused + after.appended == after.prompt_tokens
