"""That this API will go, said in every answer: RFC 9745 (Deprecation), RFC 8594 (Sunset), RFC 5829 (Link)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from email.utils import format_datetime
from typing import Self

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya_http_shim.settings import HttpSettings


@dataclass(frozen=True)
class Deprecation:
    """What is known of the end; each date is the begin of that day, UTC.

    Attributes:
        since: when it is, was or will be deprecated.
        sunset: when it will be gone.
        successor: URL of what to use then, "" where there is none.
    """

    since: date
    sunset: date | None = None
    successor: str = ""

    @classmethod
    def from_settings(cls, settings: HttpSettings) -> Self | None:
        """None where it is not deprecated."""
        if settings.deprecated_since is None:
            return None
        return cls(settings.deprecated_since, settings.sunset, settings.successor)

    def headers(self) -> dict[str, str]:
        """Of every answer."""
        headers = {"deprecation": f"@{int(_midnight(self.since).timestamp())}"}
        if self.sunset is not None:
            headers["sunset"] = format_datetime(_midnight(self.sunset), usegmt=True)
        if self.successor:
            headers["link"] = f'<{self.successor}>; rel="successor-version"'
        return headers

    def banner(self) -> str:
        """One line for the operator who starts the server."""
        end = f", gone on {self.sunset}" if self.sunset is not None else ""
        instead = f"; its successor: {self.successor}" if self.successor else ""
        return f"this HTTP API is deprecated since {self.since}{end}{instead}"


class DeprecationHeaders:
    """Adds headers to every answer, beside those of the same name that it has."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        self._app = app
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.append(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers if self._headers else send)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
