"""GET /metrics, and what else may come in at its port."""

import asyncio
import socket
from contextlib import closing

import pytest
import structlog
from structlog.testing import capture_logs

from kakeya_shared.metrics import exposition
from kakeya_shared.metrics.exposition import Exposition, ExpositionError
from kakeya_shared.metrics.meters import Meters
from kakeya_shared.settings.addresses import HostPort
from tests.scrape import Exposition as Seen
from tests.scrape import get

PLAIN = "text/plain; version=0.0.4; charset=utf-8"


def toy() -> Meters:
    meters = Meters()
    meters.counter("toy_seen_total", "Seen.").inc(3)
    return meters


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "[::1]:0", "localhost:0"])
async def test_a_reader_is_answered(bind: str) -> None:
    async with Exposition(toy(), bind) as served:
        host, port = HostPort.parse(served.address)
        assert (host, port > 0) == (HostPort.parse(bind).host, True)
        status, media_type, text = await asyncio.to_thread(get, served.address, "/metrics")
    assert (status, media_type) == (200, PLAIN)
    assert Seen.of(text).value("toy_seen_total") == 3


async def test_open_metrics_for_who_asks_for_it() -> None:
    async with Exposition(toy(), "127.0.0.1:0") as served:
        accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"
        _, media_type, text = await asyncio.to_thread(get, served.address, "/metrics", accept)
    assert media_type.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/metrics/more", 404), ("POST", "/metrics", 405), ("GET", "/metrics?name[]=x", 200)],
)
async def test_other_requests_are_told_so(method: str, path: str, status: int) -> None:
    async with Exposition(toy(), "127.0.0.1:0") as served:
        assert (await asyncio.to_thread(get, served.address, path, "", method))[0] == status


async def test_a_head_has_no_body() -> None:
    async with Exposition(toy(), "127.0.0.1:0") as served:
        status, media_type, text = await asyncio.to_thread(get, served.address, "/metrics", "", "HEAD")
    assert (status, media_type, text) == (200, PLAIN, "")


async def test_none_listens_nowhere() -> None:
    async with Exposition(toy(), "none") as served:
        assert served.address == ""


async def test_an_address_that_is_taken_is_an_error() -> None:
    async with Exposition(toy(), "127.0.0.1:0") as served:
        with pytest.raises(ExpositionError, match=served.address):
            await Exposition(toy(), served.address).__aenter__()
    async with Exposition(toy(), served.address):  # it is free again
        pass


async def test_a_host_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ExpositionError, match="no-such-host"):
        await Exposition(toy(), "no-such-host.invalid:0").__aenter__()


async def test_who_says_nothing_holds_up_nobody_and_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition._Handler, "timeout", 0.2)
    async with Exposition(toy(), "127.0.0.1:0") as served:
        with closing(socket.create_connection(HostPort.parse(served.address))) as silent:
            assert (await asyncio.to_thread(get, served.address, "/metrics"))[0] == 200
            silent.settimeout(60)
            assert await asyncio.to_thread(silent.recv, 1) == b""


async def test_that_others_can_read_is_said_aloud() -> None:
    structlog.reset_defaults()
    with capture_logs() as logs:
        async with Exposition(toy(), "0.0.0.0:0"):
            pass
        async with Exposition(toy(), "127.0.0.1:0"):
            pass
    assert [(log["log_level"], "plaintext" in log["event"]) for log in logs] == [("warning", True)]
