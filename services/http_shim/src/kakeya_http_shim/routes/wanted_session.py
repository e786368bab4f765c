"""What a request's headers say of the session that it wants."""

from dataclasses import dataclass
from typing import Self

from starlette.datastructures import Headers
from starlette.types import Scope

from kakeya_http_shim.conversations.said import SESSION_HEADER, SESSION_ID_HEADER
from kakeya_http_shim.problems import ApiError

_NEW = "new"


@dataclass(frozen=True, slots=True)
class WantedSession:
    """What a request insists on; nothing where its client leaves it to this server.

    Attributes:
        session_id: it goes on in this session, or in a fork of it.
        is_new: it begins a new one.
    """

    session_id: str = ""
    is_new: bool = False

    @classmethod
    def of(cls, scope: Scope) -> Self:
        """Raises ApiError."""
        headers = Headers(scope=scope)
        state, session_id = headers.get(SESSION_HEADER), headers.get(SESSION_ID_HEADER)
        if state not in (None, _NEW):
            raise _invalid(SESSION_HEADER, f"can only be `{_NEW}`; {SESSION_ID_HEADER} names a session")
        if session_id == "":
            raise _invalid(SESSION_ID_HEADER, "names no session")
        if state and session_id:
            raise _invalid(SESSION_ID_HEADER, f"not together with {SESSION_HEADER}: {_NEW}")
        return cls(session_id or "", bool(state))

    @property
    def is_any(self) -> bool:
        """It insists on nothing."""
        return not self.session_id and not self.is_new

    def check_live(self, is_live: bool) -> None:
        """Raises ApiError where a request without live sessions names one."""
        if self.session_id and not is_live:
            raise _invalid(SESSION_ID_HEADER, "this request has no live session")


def _invalid(header: str, message: str) -> ApiError:
    return ApiError(400, f"{header}: {message}", param=header, code="invalid_value")
