"""GitHub's REST API, as much of it as the workflows use: JSON both ways, pages, refusals for a while."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from email.message import Message
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

TIMEOUT_SECONDS = 30
MAX_TRIES = 5
MAX_WAIT_SECONDS = 300
"""A limit that ends later than this is an error: a job that sleeps for an hour says nothing."""


class GitHubError(Exception):
    """What was asked for was not done; the message says what, and how GitHub answered.

    Attributes:
        status: of HTTP; none: there was no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _NoRedirects(HTTPRedirectHandler):
    """urllib would hand the token on to wherever it is sent."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Api:
    """One repository's.

    Args:
        repository: OWNER/NAME.
        token: what is sent as a bearer token.
        url: where the API begins, without a slash in the end.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        repository: str,
        token: str,
        url: str = "https://api.github.com",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.repository = repository
        self._token = token
        self._url = url
        self._sleep = sleep
        self._open = build_opener(_NoRedirects).open

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> "Api":
        """As a job of a workflow sees it. Raises GitHubError where a variable is missing."""
        names = ("GITHUB_REPOSITORY", "GITHUB_TOKEN")
        if missing := [name for name in names if not environment.get(name)]:
            raise GitHubError(f"{' and '.join(missing)} must be set: this runs in a job of a workflow")
        repository, token = (environment[name] for name in names)
        return cls(repository, token, environment.get("GITHUB_API_URL") or "https://api.github.com")

    def get(self, path: str) -> Any:
        """What is at `path`, which begins behind /repos/OWNER/NAME. Raises GitHubError."""
        return self._ask("GET", self._at(path))[0]

    def send(self, method: str, path: str, body: Any = None) -> None:
        """Raises GitHubError."""
        self._ask(method, self._at(path), body)

    def pages(self, path: str) -> Iterator[Any]:
        """Each entry of a list, over all its pages. Raises GitHubError."""
        url: str | None = f"{self._at(path)}?per_page=100"
        while url:
            entries, headers = self._ask("GET", url)
            yield from entries
            url = next_page(headers.get("Link", ""))
            if url and not url.startswith(f"{self._url}/"):
                raise GitHubError(f"the next page of {path} is at {url}, which is not GitHub's API")

    def _at(self, path: str) -> str:
        return f"{self._url}/repos/{self.repository}/{path}"

    def _ask(self, method: str, url: str, body: Any = None) -> "tuple[Any, Message[str, str]]":
        number = 0
        while True:
            number += 1
            status = None
            try:
                with self._open(self._request(method, url, body), timeout=TIMEOUT_SECONDS) as answer:
                    text = answer.read()
                    return json.loads(text) if text else None, answer.headers
            except HTTPError as error:
                status = error.code
                with error:
                    said = f"{method} {url}: {status} {_message(error.read())}"
                wait = _wait_of(status, error.headers, number)
            except (HTTPException, OSError, URLError, ValueError) as error:
                said, wait = f"{method} {url}: {error}", float(2**number)
            if wait is None or number == MAX_TRIES:
                raise GitHubError(said, status)
            if wait > MAX_WAIT_SECONDS:
                raise GitHubError(f"{said} (again in {wait:.0f} s, which is too long to wait)", status)
            self._sleep(wait)

    def _request(self, method: str, url: str, body: Any) -> Request:
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "User-Agent": "kakeya-workflows",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        data = None if body is None else json.dumps(body).encode()
        return Request(url, data, headers, method=method)  # noqa: S310 - the API's, or what _at makes of it


def next_page(link: str) -> str | None:
    """Of a Link header (RFC 8288)."""
    for part in link.split(","):
        target, _, parameters = part.partition(";")
        if 'rel="next"' in parameters.replace(" ", ""):
            return target.strip().strip("<>")
    return None


def _message(text: bytes) -> str:
    """Of an error's body, as far as it has one."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200].decode(errors="replace")


def _wait_of(status: int, headers: "Message[str, str]", number: int) -> float | None:
    """Seconds until a refused request may come again; none: the answer would be the same.

    GitHub refuses with 403 or 429 for its rate limits. The primary one names the second it ends at, the secondary one
    how many seconds are to pass (https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api).
    """
    if status in (403, 429):
        if after := headers.get("Retry-After"):
            return float(after)
        if headers.get("X-RateLimit-Remaining") == "0" and (reset := headers.get("X-RateLimit-Reset")):
            return max(float(reset) - time.time(), 0) + 1
        return 60.0 if status == 429 else None
    return float(2**number) if status >= 500 else None
