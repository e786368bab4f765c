"""A GitHub on this machine: a real HTTP server that speaks as much of the API as the workflows use."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

REPOSITORY = "kakeya/kakeya"
TOKEN = "token-of-this-run"
SHA = "a" * 40


class GitHub:
    """What it holds, and what it was told.

    Attributes:
        files: of pull request 7, each as the API tells it.
        labels: of it.
        events: of it.
        environments: by name, as the API tells them.
        num_more_files: are of it, too, and are not told.
        head_repository: where its branch is; none: that was deleted.
        state: of it.
        faults: answers that come before any other, one a request: status, headers, body.
        refused: what is in an address, after its method, of which every request gets 403.
        next_of_pages: where the next page is said to be, if elsewhere.
        requests: method and path of each, with its query.
        dispatched, statuses: bodies, with what they were sent to.
    """

    def __init__(self) -> None:
        self.files: list[dict[str, Any]] = []
        self.num_more_files = 0
        self.labels: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.environments: dict[str, Any] = {}
        self.head_repository: str | None = REPOSITORY
        self.state = "open"
        self.faults: list[tuple[int, dict[str, str], str]] = []
        self.refused: str | None = None
        self.next_of_pages = ""
        self.requests: list[str] = []
        self.dispatched: list[tuple[str, Any]] = []
        self.statuses: list[tuple[str, Any]] = []
        self.url = ""

    def pull_request(self) -> dict[str, Any]:
        repo = {"full_name": self.head_repository} if self.head_repository else None
        return {
            "number": 7,
            "state": self.state,
            "changed_files": len(self.files) + self.num_more_files,
            "labels": [{"name": name} for name in self.labels],
            "head": {"sha": SHA, "repo": repo},
            "base": {"repo": {"full_name": REPOSITORY, "default_branch": "main"}},
        }

    def label(self, login: str | None, name: str = "needs-mac-m4") -> None:
        """As if `login` had put it on; none: an account that is gone."""
        self.labels.append(name)
        self.events.append({"event": "labeled", "label": {"name": name}, "actor": login and {"login": login}})

    def answer(self, method: str, path: str, body: Any) -> Any:
        """What a request gets; raises KeyError where nothing is there."""
        match method, path.split("/"):
            case "GET", ["pulls", "7"]:
                return self.pull_request()
            case "GET", ["pulls", "7", "files"]:
                return self.files
            case "GET", ["issues", "7", "events"]:
                return self.events
            case "GET", ["environments", name]:
                return self.environments[name]
            case "POST", ["issues", "7", "labels"]:
                for name in body["labels"]:
                    self.label("github-actions[bot]", name)
                return [{"name": name} for name in self.labels]
            case "DELETE", ["issues", "7", "labels", name] if unquote(name) in self.labels:
                self.labels.remove(unquote(name))
                return []
            case "POST", ["actions", "workflows", workflow, "dispatches"]:
                self.dispatched.append((workflow, body))
                return None
            case "POST", ["statuses", sha]:
                self.statuses.append((sha, body))
                return {}
        raise KeyError(path)


class _Handler(BaseHTTPRequestHandler):
    hub: GitHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.hub.requests.append(f"{self.command} {self.path}")
        if self.hub.faults:
            return self._send(*self.hub.faults.pop(0))
        if self.hub.refused and self.hub.refused in self.hub.requests[-1]:
            return self._send(403, {}, '{"message": "Resource not accessible by integration"}')
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self._send(401, {}, '{"message": "Bad credentials"}')
        address = urlsplit(self.path)
        try:
            answer = self.hub.answer(self.command, address.path.removeprefix(f"/repos/{REPOSITORY}/"), body)
        except KeyError:
            return self._send(404, {}, '{"message": "Not Found"}')
        headers: dict[str, str] = {}
        if self.command == "GET" and isinstance(answer, list):
            answer, headers = self._page(answer, address.path, parse_qs(address.query))
        return self._send(200 if answer is not None else 204, headers, "" if answer is None else json.dumps(answer))

    def do_POST(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def _page(self, entries: list[Any], path: str, query: dict[str, list[str]]) -> tuple[list[Any], dict[str, str]]:
        size, number = int(query.get("per_page", ["30"])[0]), int(query.get("page", ["1"])[0])
        last = max(-(-len(entries) // size), 1)

        def link(page: int, name: str) -> str:
            root = self.hub.next_of_pages or self.hub.url
            return f'<{root}{path}?per_page={size}&page={page}>; rel="{name}"'

        links = [link(1, "first"), link(last, "last")]
        links += [link(number + 1, "next")] if number < last else []
        headers = {"Link": ", ".join(links)} if last > 1 else {}
        return entries[(number - 1) * size : number * size], headers

    def _send(self, status: int, headers: dict[str, str], body: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHub]:
    """Its address and a token are the environment's, as in a job of a workflow."""
    hub = GitHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    for name in ("GITHUB_SERVER_URL", "GITHUB_RUN_ID", "GITHUB_OUTPUT", "GITHUB_SHA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_API_URL", hub.url)
    monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()
