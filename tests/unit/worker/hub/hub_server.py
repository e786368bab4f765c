"""A hub on this host: models with revisions, sizes and digests, in the words in which the real one answers.

It can break off in the middle of a file, damage what it sends, and refuse. What was asked is written down.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlparse

_LARGE_BYTES = 1000  # from here on a file is in large file storage, under its SHA-256


@dataclass
class Hub:
    """What it has and how it behaves.

    Attributes:
        files: of each revision of each model.
        broken_after: bytes of a file's body after which the connection is cut, once for each number.
        pauses_after: bytes of a file's body after which it says no more, until the connection is closed.
        damaged: files of which another byte is sent.
        refuses: a status and the error code with which it refuses to speak of a model.
        asked: method, path and range of each request for a file.
    """

    files: dict[tuple[str, str], dict[str, bytes]]
    broken_after: dict[str, list[int]] = field(default_factory=dict)
    pauses_after: dict[str, int] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    refuses: dict[str, tuple[int, str]] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def commit(self, model: str, revision: str) -> str:
        files = self.files[(model, revision)]
        return hashlib.sha1(repr((model, sorted(files.items()))).encode()).hexdigest()

    def of_commit(self, model: str, name: str) -> dict[str, bytes] | None:
        """The files of a revision, by its name or its commit."""
        for named, revision in self.files:
            if named == model and name in (revision, self.commit(model, revision)):
                return self.files[(named, revision)]
        return None


def digest(content: bytes) -> str:
    if len(content) >= _LARGE_BYTES:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        hub.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlparse(self.path).path)
        if path.startswith("/api/models/"):
            self._answer_api(path.removeprefix("/api/models/"))
        else:
            model, _, rest = path.removeprefix("/").partition("/resolve/")
            revision, _, name = rest.partition("/")
            self.hub.asked.append((self.command, name, self.headers.get("Range", "")))
            self._answer_file(model, revision, name)

    def _answer_api(self, path: str) -> None:
        kind = "tree" if "/tree/" in path else "revision"
        model, _, revision = path.partition(f"/{kind}/")
        if model in self.hub.refuses:
            status, code = self.hub.refuses[model]
            self._refuse(status, code)
            return
        revision = revision or "main"
        files = self.hub.of_commit(model, revision)
        if files is None:
            is_known = any(named == model for named, _ in self.hub.files)
            self._refuse(404, "RevisionNotFound" if is_known else "RepoNotFound")
            return
        if kind == "revision":
            named = next(name for known, name in self.hub.files if self.hub.of_commit(known, name) is files)
            document: Any = {"id": model, "sha": self.hub.commit(model, named), "siblings": []}
        else:
            document = [_entry(name, content) for name, content in files.items()]
        self._send(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _answer_file(self, model: str, revision: str, name: str) -> None:
        files = self.hub.of_commit(model, revision) or {}
        if name not in files:
            self._refuse(404, "EntryNotFound")
            return
        content = files[name]
        commit = next(self.hub.commit(*key) for key, found in self.hub.files.items() if found is files)
        headers = {"X-Repo-Commit": commit, "ETag": f'"{digest(content)}"', "Accept-Ranges": "bytes"}
        headers |= {"X-Linked-Etag": f'"{digest(content)}"', "X-Linked-Size": str(len(content))}
        if name in self.hub.damaged:
            content = content[:-1] + bytes([content[-1] ^ 1])
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        status = 206 if start else 200
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(status, content[start:], headers, name)

    def _send(self, status: int, body: bytes, headers: dict[str, str], name: str = "") -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if cuts := self.hub.broken_after.get(name):
            self.wfile.write(body[: cuts.pop(0)])
            self.close_connection = True
            return
        if (pause := self.hub.pauses_after.get(name)) is not None:
            self.wfile.write(body[:pause])
            self.wfile.flush()
            self.hub.closing.wait()
            self.close_connection = True
            return
        self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": f"refused: {code}"})


def _entry(name: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": name, "size": len(content), "oid": digest(content)}
    if len(content) >= _LARGE_BYTES:
        entry["oid"] = hashlib.sha1(name.encode()).hexdigest()  # of its pointer
        entry["lfs"] = {"oid": digest(content), "size": len(content), "pointerSize": 134}
    return entry
