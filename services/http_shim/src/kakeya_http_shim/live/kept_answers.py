"""Answers of the live page, which a page that is loaded anew in the middle of one goes on with."""

import asyncio
from typing import Final

from starlette.types import ASGIApp, Scope

from kakeya_http_shim.live.lasting_answer import LastingAnswer
from kakeya_http_shim.problems import ApiError, too_many
from kakeya_shared.process.detached_tasks import DetachedTasks, unheard

ALONE_SECONDS: Final = 30.0
"""How long an answer goes on although nobody reads it: as long as a page takes to be loaded anew, and more."""
KEPT_SECONDS: Final = 60.0
"""How long one that has ended can be read, where there is room for it."""
MAX_KEPT: Final = 256
"""Answers at once; some hundred KB each. One that has ended makes room for one that is asked for."""


class KeptAnswer(LastingAnswer):
    """One answer.

    Args:
        api_key: of who asked for it; nobody else can read it.
    """

    def __init__(self, api_key: str) -> None:
        super().__init__(ALONE_SECONDS, ALONE_SECONDS)
        self.api_key = api_key


class KeptAnswers:
    """The answers that are under way, and those that have just ended, by ids that their clients have made.

    Args:
        app: answers.
        tasks: of this server, which end with it.
    """

    def __init__(self, app: ASGIApp, tasks: DetachedTasks) -> None:
        self._app = app
        self._tasks = tasks
        self._answers: dict[str, KeptAnswer] = {}

    def ask(self, answer_id: str, scope: Scope, body: bytes) -> KeptAnswer:
        """Begins an answer. Raises ApiError: there is one of this id, or there are too many."""
        if answer_id in self._answers:
            raise ApiError(409, "an answer of this id was asked for already", code="answer_exists")
        if len(self._answers) >= MAX_KEPT:
            self._make_room()
        answer = self._answers[answer_id] = KeptAnswer(scope["state"]["api_key"])
        unheard(self._tasks.start(self._run(answer_id, answer, scope, body)))
        return answer

    def _make_room(self) -> None:
        """Forgets the answer that was asked for first of those that have ended. Raises ApiError: none has."""
        ended = next((answer_id for answer_id, answer in self._answers.items() if answer.is_over), None)
        if ended is None:
            raise too_many(f"{MAX_KEPT} answers of the live page are under way, no more at once")
        del self._answers[ended]

    def find(self, answer_id: str, api_key: str) -> KeptAnswer:
        """Raises ApiError: there is none of this id, or it is another key's."""
        answer = self._answers.get(answer_id)
        if answer is None or answer.api_key != api_key:
            raise ApiError(404, "there is no such answer, or not any more", code="answer_not_found")
        return answer

    async def _run(self, answer_id: str, answer: KeptAnswer, scope: Scope, body: bytes) -> None:
        try:
            await answer.run(self._app, scope, body)
        finally:
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget, answer_id, answer)

    def _forget(self, answer_id: str, answer: KeptAnswer) -> None:
        if self._answers.get(answer_id) is answer:  # else it made room, and another may have its id
            del self._answers[answer_id]
