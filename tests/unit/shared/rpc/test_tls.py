"""TLS over real sockets: who gets in, and files that change while it is served."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from cryptography.hazmat.primitives import serialization as form

from kakeya_shared import health_command
from kakeya_shared.rpc.server import BindError, RpcServer
from kakeya_shared.rpc.tls import (
    ClientTls,
    ContextTls,
    PemFiles,
    ServerTls,
    TlsError,
    client_tls,
    open_channel,
    open_socket,
)
from kakeya_shared.settings.service import RpcServerSettings
from kakeya_stubs.v1 import runtime_pb2 as pb
from kakeya_stubs.v1.runtime_pb2_grpc import RuntimeServiceStub
from tests.certificates import Authority, Pair
from tests.unit.shared.toy_service import SERVICE, serving


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    directory = tmp_path / "stranger"
    directory.mkdir()
    return Authority(directory, "stranger")


def _tls(pair: Pair, client_ca: Path | None = None) -> dict[str, Any]:
    return {"tls_cert": pair.cert, "tls_key": pair.key, "tls_client_ca": client_ca}


async def _call(address: str, tls: ClientTls | None) -> str:
    """The status of a call on a connection of its own."""
    async with open_channel(address, tls.credentials() if tls else None) as channel:
        stub: Any = RuntimeServiceStub(channel)
        try:
            await stub.CloseSession(pb.CloseSessionRequest(), timeout=60)
        except grpc.aio.AioRpcError as error:
            return error.code().name
    return "OK"


def _presented(address: str, authority: Authority) -> str:
    """The name in the certificate that the server shows to a new connection."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=authority.path)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        subject: Any = secured.getpeercert()
    return dict(part[0] for part in subject["subject"])["commonName"]


def _replace(old: Pair, new: Pair) -> None:
    """As those do who care: each file is renamed over its predecessor."""
    os.replace(new.cert, old.cert)
    os.replace(new.key, old.key)


async def test_who_knows_the_authority_gets_in(authority: Authority, stranger: Authority) -> None:
    async with serving(**_tls(authority.pair("server"))) as (server, _):
        assert await _call(server.address, ClientTls(authority.path)) == "OK"
        assert await _call(server.address, ClientTls(stranger.path)) == "UNAVAILABLE"
        assert await _call(server.address, None) == "UNAVAILABLE"


async def test_an_expired_server_is_not_trusted(authority: Authority) -> None:
    async with serving(**_tls(authority.pair("server", expired=True))) as (server, _):
        assert await _call(server.address, ClientTls(authority.path)) == "UNAVAILABLE"


async def test_clients_show_a_certificate_where_they_must(authority: Authority, stranger: Authority) -> None:
    async with serving(**_tls(authority.pair("server"), authority.path)) as (server, _):

        async def status(pair: Pair | None) -> str:
            tls = ClientTls(authority.path, *((pair.cert, pair.key) if pair else ()))
            return await _call(server.address, tls)

        assert await status(authority.pair("client")) == "OK"
        assert await status(None) == "UNAVAILABLE"
        assert await status(stranger.pair("client")) == "UNAVAILABLE"
        assert await status(authority.pair("late", expired=True)) == "UNAVAILABLE"


async def test_a_certificate_is_replaced_under_traffic(authority: Authority) -> None:
    first = authority.pair("first")
    async with (
        serving(**_tls(first)) as (server, _),
        open_channel(server.address, ClientTls(authority.path).credentials()) as channel,
    ):
        stub: Any = RuntimeServiceStub(channel)
        stream = stub.Generate(pb.GenerateRequest(max_tokens=10**9))
        before = await stream.read()
        assert await asyncio.to_thread(_presented, server.address, authority) == "first"
        _replace(first, authority.pair("second"))
        assert await asyncio.to_thread(_presented, server.address, authority) == "second"
        for token_id in range(before.token_id + 1, 50):
            assert (await stream.read()).token_id == token_id
        stream.cancel()


async def test_new_client_authorities_hold_from_the_next_connection_on(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.path.read_bytes())
    client = stranger.pair("client")
    async with serving(**_tls(authority.pair("server"), trusted)) as (server, _):
        tls = ClientTls(authority.path, client.cert, client.key)
        assert await _call(server.address, tls) == "UNAVAILABLE"
        trusted.write_bytes(authority.path.read_bytes() + stranger.path.read_bytes())
        assert await _call(server.address, tls) == "OK"


async def test_while_files_are_half_written_the_old_ones_serve(authority: Authority) -> None:
    first, second = authority.pair("first"), authority.pair("second")
    async with serving(**_tls(first)) as (server, _):
        with structlog.testing.capture_logs() as logs:
            os.replace(second.cert, first.cert)
            for _ in range(3):
                assert await asyncio.to_thread(_presented, server.address, authority) == "first"
            os.replace(second.key, first.key)
            assert await asyncio.to_thread(_presented, server.address, authority) == "second"
    assert [line["log_level"] for line in logs] == ["warning", "info"]
    assert "no certificate with its key" in logs[0]["error"]


def _no_file(pair: Pair) -> str:
    pair.key.unlink()
    return "No such file"


def _half_a_certificate(pair: Pair) -> str:
    pair.cert.write_bytes(pair.cert.read_bytes()[:200])
    return "no certificate with its key"


def _empty_key(pair: Pair) -> str:
    pair.key.write_bytes(b"")
    return "no certificate with its key"


def _binary_certificate(pair: Pair) -> str:
    pair.cert.write_bytes(bytes(range(256)))
    return "no certificate with its key"


@pytest.mark.parametrize("spoil", [_no_file, _half_a_certificate, _empty_key, _binary_certificate])
def test_what_cannot_be_used_leaves_the_old_in_use_until_it_is_mended(
    authority: Authority, spoil: Callable[[Pair], str]
) -> None:
    pair = authority.pair("one")
    files = PemFiles(cert=pair.cert, key=pair.key, authorities=authority.path)
    before = files.pem
    assert not files.refresh()
    with structlog.testing.capture_logs() as logs:
        why = spoil(pair)
        assert not files.refresh()
        assert not files.refresh()  # and says it once
        assert [why in line["error"] for line in logs] == [True]
        assert files.pem is before
        _replace(pair, authority.pair("two"))
        assert files.refresh()
    assert files.pem != before
    assert not files.refresh()
    spoil(pair)
    with pytest.raises(TlsError, match="one"):
        PemFiles(cert=pair.cert, key=pair.key, authorities=None)


def test_a_key_with_a_password_is_refused_without_a_question(authority: Authority) -> None:
    pair = authority.pair("one")
    key: Any = form.load_pem_private_key(pair.key.read_bytes(), None)
    locked = form.BestAvailableEncryption(b"secret")
    pair.key.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, locked))
    with pytest.raises(TlsError, match="no certificate with its key"):
        ServerTls(pair.cert, pair.key)


@pytest.mark.parametrize("content", [b"", b"no PEM", b"\xff\x00"])
def test_authorities_have_certificates(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.pem"
    path.write_bytes(content)
    with pytest.raises(TlsError, match=r"empty\.pem: no certificate authorities in PEM"):
        ClientTls(path)


async def test_authorities_may_stand_among_their_names(authority: Authority, stranger: Authority) -> None:
    bundle = "# Behörde für Router — ключ\n".encode().join(
        [b"", stranger.path.read_bytes(), authority.path.read_bytes()]
    )
    pair = authority.pair("server")
    authority.path.write_bytes(bundle)
    async with serving(**_tls(pair)) as (server, _):
        assert await _call(server.address, ClientTls(authority.path)) == "OK"


async def test_a_host_of_any_name_is_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server = grpc.aio.server()
    server.add_insecure_port("unix:50051")
    await server.start()
    assert (tmp_path / "50051").is_socket()
    # There is no such host; the socket would answer that it has no such method.
    assert await _call("unix:50051", None) in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    await server.stop(0)


def test_files_that_change_while_they_are_read_are_read_later(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = authority.pair("one")
    check = PemFiles._check

    def replaced_meanwhile(files: PemFiles, pem: Any) -> None:
        check(files, pem)
        _replace(pair, authority.pair("two"))

    monkeypatch.setattr(PemFiles, "_check", replaced_meanwhile)
    with pytest.raises(TlsError, match="changed while it was read"):
        ServerTls(pair.cert, pair.key)


def test_gRPC_is_given_what_has_changed(authority: Authority) -> None:
    pair = authority.pair("one")
    tls = ServerTls(pair.cert, pair.key)
    assert tls.fetch() is None
    _replace(pair, authority.pair("two"))
    assert tls.fetch() is not None
    assert tls.fetch() is None


def test_a_client_has_new_credentials_when_its_files_have_changed(authority: Authority) -> None:
    pair = authority.pair("one")
    tls = client_tls(authority.path, pair.cert, pair.key)
    assert tls is not None
    before = tls.credentials()
    assert tls.credentials() is before
    _replace(pair, authority.pair("two"))
    assert tls.credentials() is not before
    assert client_tls(None, pair.cert, pair.key) is None


async def test_bad_files_end_the_start(authority: Authority) -> None:
    pair = authority.pair("one")
    settings = RpcServerSettings.model_construct(tls_cert=pair.cert, tls_key=authority.pair("two").key)
    with pytest.raises(BindError, match=r"one\.crt and .*two\.key are no certificate with its key"):
        await RpcServer("127.0.0.1:0", [SERVICE], settings=settings).__aenter__()


async def test_health_over_tls(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = authority.pair("client")
    async with serving(**_tls(authority.pair("server"), authority.path)) as (server, _):
        await server.set_serving(True)
        flags = ["--tls-ca", str(authority.path), "--tls-cert", str(client.cert), "--tls-key", str(client.key)]
        assert await asyncio.to_thread(health_command.main, [server.address, *flags]) == 0
        assert await asyncio.to_thread(health_command.main, [server.address, *flags[:2]]) == 1
        assert await asyncio.to_thread(health_command.main, [server.address]) == 1
        for flag, value in zip(flags[::2], flags[1::2], strict=True):
            monkeypatch.setenv("KAKEYA_" + flag[2:].upper().replace("-", "_"), value)
        assert await asyncio.to_thread(health_command.main, [server.address]) == 0
        client.key.unlink()
        assert await asyncio.to_thread(health_command.main, [server.address]) == 2
    assert "client.key: No such file" in capsys.readouterr().err
    monkeypatch.delenv("KAKEYA_TLS_KEY")
    assert health_command.main(["127.0.0.1:1"]) == 2
    assert "a certificate and its key go together" in capsys.readouterr().err


def test_connections_that_are_not_grpcs_follow_the_files(authority: Authority, stranger: Authority) -> None:
    pair = authority.pair("server")
    tls = ContextTls.of_server(pair.cert, pair.key, authority.path)
    context = tls.context()
    assert tls.context() is context
    assert context.verify_mode is ssl.CERT_REQUIRED
    authority.pair("server")
    assert tls.context() is not context
    client = ContextTls.of_client(authority.path, None, None)
    assert "authority" in str(client.context().get_ca_certs())
    assert client.context().check_hostname


def test_files_that_change_while_a_context_is_made_leave_the_old_one(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = authority.pair("server")
    files = PemFiles(cert=pair.cert, key=pair.key, authorities=None)
    tls = ContextTls(files, ssl.PROTOCOL_TLS_SERVER)
    context = tls.context()
    pair.cert.unlink()
    with pytest.raises(TlsError, match=r"server\.crt cannot be used"):
        files.context(ssl.PROTOCOL_TLS_SERVER)
    monkeypatch.setattr(files, "refresh", lambda: True)
    with structlog.testing.capture_logs() as logs:
        assert tls.context() is context
    assert "stay in use" in logs[0]["event"]


async def test_a_server_on_a_socket_of_the_file_system(tmp_path: Path) -> None:
    async with serving(tmp_path / "socket") as (server, _):
        assert server.address == f"unix:{tmp_path / 'socket'}"
        async with open_socket(tmp_path / "socket") as channel:
            stub: Any = RuntimeServiceStub(channel)
            assert (await stub.CloseSession(pb.CloseSessionRequest(), timeout=60)).final_history_length == 7
