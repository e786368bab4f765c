"""What a client asks of a runtime as a whole: its models, and which sessions there are."""

from collections.abc import AsyncIterator, Iterable

from kakeya._async.calls import AsyncCalls, repeat
from kakeya._transport._requests import fill, tag_list
from kakeya._transport._retry import Retry
from kakeya.results import FoundSession, ListedSession, ServedModel
from kakeya_stubs.v1 import runtime_pb2


class AsyncLookups:
    """Base of a client: calls that change nothing."""

    _calls: AsyncCalls

    async def list_models(self, *, timeout_seconds: float | None = None) -> list[ServedModel]:
        """The models that are served now, by name. Raises KakeyaError."""
        request = runtime_pb2.ListModelsRequest()
        retry = Retry(self._calls.deadline(timeout_seconds), max_attempts=self._calls.max_attempts)
        response = await repeat(lambda: self._calls.unary("ListModels", request, retry.deadline), retry)
        return [ServedModel.from_wire(model) for model in response.models]

    async def list_sessions(self, *, timeout_seconds: float | None = None) -> AsyncIterator[ListedSession]:
        """The sessions of the key's tenant, in no order, fetched as they are taken; without keys, those of no tenant.

        None is resumed or kept alive by it. One that is created or closed meanwhile may be missing.

        Args:
            timeout_seconds: of each page; None takes the client's.

        Raises:
            KakeyaError
        """
        seen: set[str] = set()
        request = runtime_pb2.ListSessionsRequest()
        while True:
            response = await self._page(request, timeout_seconds)
            for session in response.sessions:
                if session.session_id not in seen:
                    seen.add(session.session_id)
                    yield ListedSession.from_wire(session)
            if not response.next_page_token:
                return
            request.page_token = response.next_page_token

    async def _page(
        self, request: runtime_pb2.ListSessionsRequest, timeout_seconds: float | None
    ) -> runtime_pb2.ListSessionsResponse:
        retry = Retry(self._calls.deadline(timeout_seconds), max_attempts=self._calls.max_attempts)
        found: runtime_pb2.ListSessionsResponse = await repeat(
            lambda: self._calls.unary("ListSessions", request, retry.deadline), retry
        )
        return found

    async def find_session(
        self,
        tags: Iterable[bytes],
        *,
        model: str | None = None,
        session_id: str | None = None,
        timeout_seconds: float | None = None,
    ) -> FoundSession | None:
        """The session of the key's tenant that has one of these tags (`tag` of a session); None: none has.

        The first tag that a session has counts, and of several sessions with it the one that came to it last.

        Args:
            tags: at most 64, those of the deepest place of a conversation first.
            model: of the session; None where the runtime has a default.
            session_id: of the one session to look at; None: all. A runtime of an older version looks at all anyway.

        Raises:
            KakeyaError: NoWorker where the model is not served, SessionNotFound where there is no such session.
        """
        request = fill(runtime_pb2.FindSessionRequest(tags=tag_list(tags)), model=model, session_id=session_id)
        response = await self._calls.repeated("FindSession", request, timeout_seconds)
        return FoundSession.from_wire(response) if response.session_id else None
