"""How a command is told where the runtime is, what to show it, and whom to trust."""

import io
import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from kakeya.cli.commands import chat, keys, workers
from kakeya.cli.flags import connection_flags
from kakeya.cli.flags.connection import Connection
from kakeya.cli.flags.connection_flags import BadConnectionFlag
from tests.certificates import Authority
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails
from tests.unit.sdk.transport.test_tls import server_credentials

SECRET = "kakeya_key_0123456789ab_secret"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests."""
    for name in [name for name in os.environ if name.startswith("KAKEYA_")]:
        monkeypatch.delenv(name)


def read(*argv: str, **environment: str) -> Connection:
    parser = ArgumentParser()
    connection_flags.add(parser, environment, address_variables=("KAKEYA_CHAT_ADDRESS", "KAKEYA_ADDRESS"))
    return connection_flags.read(parser.parse_args(argv), environment)


def test_the_address_is_the_flag_else_a_variable_else_here() -> None:
    assert read().address == "localhost:50051"
    assert read(KAKEYA_ADDRESS="a:1").address == "a:1"
    assert read(KAKEYA_ADDRESS="a:1", KAKEYA_CHAT_ADDRESS="b:2").address == "b:2"
    assert read("--address", "c:3", KAKEYA_CHAT_ADDRESS="b:2").address == "c:3"


def test_a_command_may_tell_whether_an_address_was_named() -> None:
    parser = ArgumentParser()
    connection_flags.add(parser, {}, default_address=None)
    flags = parser.parse_args([])
    assert flags.address is None
    assert connection_flags.read(flags, {}, default_address="127.0.0.1:9").address == "127.0.0.1:9"


def test_the_key_comes_from_the_variable_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\n")
    assert (read().api_key, read().metadata) == ("", ())
    assert read(KAKEYA_API_KEY="variable").metadata == (("authorization", "Bearer variable"),)
    connection = read("--api-key-file", str(file), KAKEYA_API_KEY="variable")
    assert connection.api_key == SECRET
    assert SECRET not in repr(connection)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"secret words", "has blanks, line ends or characters outside ASCII, which no key has"),
        (b"\xffsecret", "holds no key"),
        (None, "No such file or directory"),
    ],
)
def test_a_file_without_a_key(tmp_path: Path, content: bytes | None, says: str) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadConnectionFlag) as raised:
        read("--api-key-file", str(file))
    assert str(raised.value) == f"--api-key-file {file}: {says}"


def test_a_variable_without_a_key() -> None:
    with pytest.raises(BadConnectionFlag) as raised:
        read(KAKEYA_API_KEY="secret words")
    assert str(raised.value).startswith("$KAKEYA_API_KEY: has blanks")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "address", ["example.com:1", "10.0.0.1:1", "dns:///router:1", "unixbox:1", "[fe80::1]:1", "router"]
)
def test_a_key_in_plaintext_to_elsewhere_is_warned_of(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    read("--address", address, KAKEYA_API_KEY=SECRET)
    expected = f"kakeya: warning: the key goes to {address} in plaintext; use TLS (--tls-ca)\n"
    assert capsys.readouterr().err == expected
    read("--address", address)
    assert capsys.readouterr().err == "", "there is no key"


@pytest.mark.parametrize(
    "address",
    ["localhost:1", "127.0.0.2:1", "[::1]:1", "ipv6:[::1]:1", "dns:///localhost:1", "unix:///run/k", "localhost"],
)
def test_a_key_that_stays_here_is_not(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    read("--address", address, KAKEYA_API_KEY=SECRET)
    assert capsys.readouterr().err == ""


def test_a_key_over_tls_is_not_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read("--address", "example.com:1", "--tls-ca", str(Authority(tmp_path).path), KAKEYA_API_KEY=SECRET)
    assert capsys.readouterr().err == ""


def test_tls_is_for_whoever_names_a_file(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("client")
    assert read().credentials is None
    assert read(KAKEYA_TLS_CA=str(authority.path)).credentials
    assert read("--tls-cert", str(pair.cert), KAKEYA_TLS_KEY=str(pair.key)).credentials
    for flags, says in (
        (("--tls-key", str(pair.key)), "--tls-cert and --tls-key go together"),
        (("--tls-ca", str(pair.key)), f"{pair.key}: holds no certificates in PEM"),
        (("--tls-ca", "/nowhere"), "/nowhere: No such file or directory"),
    ):
        with pytest.raises(BadConnectionFlag) as raised:
            read(*flags)
        assert str(raised.value) == says


def test_a_command_uses_key_and_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("client")
    admin = ScriptedAdmin(server_credentials(authority, mutual=True))
    monkeypatch.setenv("KAKEYA_API_KEY", SECRET)
    monkeypatch.setenv("KAKEYA_TLS_CA", str(authority.path))
    flags = ["list", "--address", admin.address]
    assert keys.main([*flags, "--tls-cert", str(pair.cert), "--tls-key", str(pair.key)]) == 0
    assert admin.metadata["ListKeys"][0]["authorization"] == f"Bearer {SECRET}"
    assert keys.main(flags) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.endswith("for this name, and does it ask for yours (--tls-cert, --tls-key)?")
    admin.before["ListWorkers"].append(fails("UNAUTHENTICATED"))
    assert workers.main([*flags, "--tls-cert", str(pair.cert), "--tls-key", str(pair.key)]) == 1
    assert capsys.readouterr().err == (
        "kakeya workers: error: scripted UNAUTHENTICATED; the key of KAKEYA_API_KEY or --api-key-file is none of this "
        "router's, expired or revoked\n"
    )
    monkeypatch.delenv("KAKEYA_TLS_CA")
    assert keys.main(flags) == 1
    assert capsys.readouterr().err.endswith("; check the address; one that serves TLS needs --tls-ca\n")
    admin.stop()
    assert keys.main([*flags, "--tls-ca", str(authority.path)]) == 1
    assert capsys.readouterr().err.endswith("; nothing listens there; `kakeya up` starts one on this machine\n")


def test_a_chat_uses_key_and_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    runtime = ScriptedRuntime(server_credentials(authority))
    runtime.before["CreateSession"].append(fails("PERMISSION_DENIED"))
    monkeypatch.setenv("KAKEYA_API_KEY", SECRET)
    monkeypatch.setenv("KAKEYA_CHAT_ADDRESS", runtime.address)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    monkeypatch.setattr("kakeya.text.chat_tokenizer.ChatTokenizer", lambda name, **_: _NoTokenizer())
    assert chat.main(["--tls-ca", str(authority.path), "--tokenizer", "any"]) == 1
    assert capsys.readouterr().err.endswith(
        "kakeya chat: error: scripted PERMISSION_DENIED; it takes a key with the scope sessions, which an "
        "administrator makes: `kakeya keys create --scope sessions`\n"
    )
    assert runtime.metadata["CreateSession"][0]["authorization"] == f"Bearer {SECRET}"
    assert chat.main(["--tls-ca", "/nowhere", "--tokenizer", "any"]) == 2
    assert capsys.readouterr().err == "kakeya chat: error: /nowhere: No such file or directory\n"
    runtime.stop()


class _NoTokenizer:
    eos_token_ids = ()
    has_template = False


def test_an_address_that_is_no_text() -> None:
    flags = Namespace(address="a\udcff:1", api_key_file=None, tls_ca=None, tls_cert=None, tls_key=None)
    with pytest.raises(BadConnectionFlag, match=r"^--address a\\xdcff:1 is not HOST:PORT$"):
        connection_flags.read(flags, {})
