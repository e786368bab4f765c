"""A proxy of the environment: this machine is reached without it, and an error elsewhere names it."""

from collections.abc import Iterator

import pytest

from kakeya import AsyncClient
from kakeya.errors import ConnectionFailed
from tests.refusing_proxy import RefusingProxy, refusing_proxy
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[RefusingProxy]:
    with refusing_proxy(monkeypatch) as proxy:
        yield proxy


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_this_machine_is_reached_past_the_proxy(
    runtime: ScriptedRuntime, proxy: RefusingProxy, host: str
) -> None:
    async with AsyncClient(f"{host}:{runtime.port}") as client, await client.create_session() as session:
        assert (await session.append([1, 2])).history_length == 2
        assert len(await session.generate(max_tokens=3).all()) == 3
    assert proxy.requests == []


async def test_an_error_elsewhere_names_the_proxy(proxy: RefusingProxy) -> None:
    async with AsyncClient("runtime.invalid:50051", max_attempts=1) as client:
        with pytest.raises(ConnectionFailed, match=r"\(through the proxy of \$https_proxy\)$"):
            await client.create_session()
    assert proxy.requests[0] == "CONNECT runtime.invalid:50051 HTTP/1.1"


async def test_no_proxy_is_heeded(proxy: RefusingProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "example.com, invalid")
    async with AsyncClient("runtime.invalid:50051", max_attempts=1) as client:
        with pytest.raises(ConnectionFailed) as raised:
            await client.create_session()
    assert "proxy" not in str(raised.value)
    assert proxy.requests == []
