"""The live page: where it is served, with which headers, and its feed."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from kakeya_http_shim.live import ui_routes
from kakeya_http_shim.live.kept_answers import KeptAnswers
from kakeya_http_shim.live.ui_routes import page_files
from kakeya_http_shim.settings import HttpSettings
from kakeya_shared.process.detached_tasks import DetachedTasks
from tests.unit.http_shim.served import echo
from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}


@pytest.mark.parametrize(
    ("flags", "serves"),
    [
        ((), True),
        (("--ui", "off"), False),
        (("--bind", "0.0.0.0:8000", "--insecure"), False),
        (("--bind", "0.0.0.0:8000", "--insecure", "--ui", "on"), True),
    ],
)
def test_where_it_is_served(flags: tuple[str, ...], serves: bool) -> None:
    assert HttpSettings.parse([*flags]).serves_ui == serves


async def test_it_can_be_left_out(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--ui", "off") as shim:
        assert (await shim.http.get("/ui")).status_code == 404


async def test_the_page_and_all_its_files(shim: Shim) -> None:
    page = await shim.http.get("/ui/")
    assert page.status_code == 200
    for name in page_files():
        answer = await shim.http.get(f"/ui/{name}")
        assert answer.status_code == 200, name
        assert answer.headers["content-type"].partition(";")[0] == TYPES[name.rpartition(".")[2]]
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert (await shim.http.get("/ui/nothing.js")).json()["error"]["code"] == "unknown_url"
    assert (await shim.http.get("/ui/..%2fapp.py")).status_code == 404


async def test_what_a_browser_has_is_not_sent_again(shim: Shim) -> None:
    tag = (await shim.http.get("/ui")).headers["etag"]
    again = await shim.http.get("/ui", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    page = page_files()["index.html"].content.decode()
    assert "style=" not in page
    assert "<style" not in page
    assert "onclick" not in page
    assert page.count("<script") == page.count("<script src=") + page.count('<script type="module" src=')
    for name, file in page_files().items():
        if name.endswith((".js", ".css", ".html")) and not name.startswith("uPlot"):
            assert "http://" not in file.content.decode(), name
            assert "https://" not in file.content.decode(), name
            assert "innerHTML" not in file.content.decode(), name


def test_the_library_has_its_licence() -> None:
    assert "MIT License" in page_files()["uPlot.LICENSE.txt"].content.decode()


async def test_a_feed_says_what_is_wrong(shim: Shim) -> None:
    """The scripted runtime has no Watch, as one of an older version."""
    answer = await shim.http.get("/ui/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    kind, said = answer.text.strip().split("\n")
    assert kind == "event: error"
    assert json.loads(said.removeprefix("data: "))["error"]["type"] == "server_error"


async def test_without_a_good_key_there_is_no_feed_and_no_answer(shim: Shim, runtime: ScriptedRuntime) -> None:
    for request in (("GET", "/ui/events"), ("GET", "/ui/answers/0123456789abcdef")):
        runtime.before["ListModels"].append(fails("UNAUTHENTICATED"))
        answer = await shim.http.request(*request, headers={"authorization": f"Bearer {request[1][-4:]}"})
        assert answer.status_code == 401
    assert (await shim.http.get("/ui")).status_code == 200
    assert isinstance(answer, httpx.Response)


async def test_what_runs_is_told_in_events_and_that_nothing_changes() -> None:
    class Once:
        async def events(self, api_key: str) -> AsyncIterator[dict[str, int] | None]:
            yield {"at": 7}
            yield None

    routes = ui_routes.UiRoutes(Once(), KeptAnswers(echo, DetachedTasks()))  # type: ignore[arg-type]  # only its events
    said = [text async for text in routes.said("")]
    assert said == ['data: {"at":7}\n\n', ": quiet\n\n"]
