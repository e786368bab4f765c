"""TLS by files, against a scripted runtime on a real socket."""

from pathlib import Path

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, Client, tls_credentials
from tests.certificates import Authority
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server_credentials(authority: Authority, *, mutual: bool = False) -> grpc.ServerCredentials:
    pair = authority.pair("server")
    roots = authority.path.read_bytes() if mutual else None
    return grpc.ssl_server_credentials([(pair.key.read_bytes(), pair.cert.read_bytes())], roots, mutual)


def test_a_runtime_with_a_certificate(authority: Authority) -> None:
    runtime = ScriptedRuntime(server_credentials(authority))
    with Client(runtime.address, credentials=tls_credentials(ca=authority.path)) as client:
        assert client.create_session().id == "counter.0"
    with Client(runtime.address, max_attempts=1, timeout_seconds=60) as client, pytest.raises(kakeya.ConnectionFailed):
        client.create_session()
    public = tls_credentials()
    with (
        Client(runtime.address, credentials=public, max_attempts=1, timeout_seconds=60) as client,
        pytest.raises(kakeya.ConnectionFailed),
    ):
        client.create_session()
    runtime.stop()


async def test_a_runtime_that_asks_for_a_certificate(authority: Authority) -> None:
    runtime = ScriptedRuntime(server_credentials(authority, mutual=True))
    pair = authority.pair("client")
    credentials = tls_credentials(ca=str(authority.path), cert=str(pair.cert), key=str(pair.key))
    async with AsyncClient(runtime.address, credentials=credentials) as client:
        assert (await client.create_session()).id == "counter.0"
    nobody = tls_credentials(ca=authority.path)
    async with AsyncClient(runtime.address, credentials=nobody, max_attempts=1, timeout_seconds=60) as client:
        with pytest.raises(kakeya.ConnectionFailed):
            await client.create_session()
    runtime.stop()


def test_files_of_no_use_are_named(authority: Authority, tmp_path: Path) -> None:
    pair, other = authority.pair("client"), authority.pair("other").key
    cert, key = pair.cert, pair.key
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("no PEM")
    with pytest.raises(ValueError, match=f"^{rubbish}: holds no certificates in PEM$"):
        tls_credentials(ca=rubbish)
    with pytest.raises(ValueError, match=f"^{cert} and {other}: no certificate chain and its private key in PEM$"):
        tls_credentials(cert=cert, key=other)
    with pytest.raises(ValueError, match=r"^cert and key go together$"):
        tls_credentials(cert=cert)
    nowhere = tmp_path / "nowhere"
    for files in ({"ca": nowhere}, {"cert": nowhere, "key": key}, {"cert": cert, "key": nowhere}):
        with pytest.raises(FileNotFoundError) as raised:
            tls_credentials(**files)
        assert Path(raised.value.filename) == nowhere
