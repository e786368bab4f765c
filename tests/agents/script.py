"""What a model is to say to an agent, request by request."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.loops import played_verifier
from tests.loops.calls import call_tokens
from tests.loops.families import FamilyModel

Body = dict[str, Any]
_BESIDE = "A talk"
"""What is said to requests that an agent makes beside its conversation, as for a title of it."""


def has_tools(body: Body) -> bool:
    """Whether a request is of an agent's conversation, and not beside it."""
    return bool(body.get("tools"))


class Script:
    """The director of a recorder: answers of an agent's conversation, one after the other, whatever it asks beside."""

    def __init__(
        self, model: FamilyModel, answers: Sequence[str], is_of_talk: Callable[[Body], bool] = has_tools
    ) -> None:
        self._model, self._answers, self._is_of_talk = model, list(answers), is_of_talk

    @property
    def num_left(self) -> int:
        """Answers that nobody has asked for yet."""
        return len(self._answers)

    def __call__(self, body: Body) -> None:
        """A request comes."""
        is_next = self._is_of_talk(body) and self._answers
        text = self._answers.pop(0) if is_next else _BESIDE
        played_verifier.play(self._model.folder, [call_tokens(self._model, text)])
