"""Settings: flags over variables over defaults, and one line a problem."""

from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import model_validator

from kakeya_shared.settings.addresses import Address
from kakeya_shared.settings.service import ListenerSettings, Names, ServiceSettings, setting


class ToySettings(ServiceSettings):
    """Runs a toy."""

    model_config = ServiceSettings.configured(command="toy")

    bind: Address = setting("127.0.0.1:1", "where to listen", unit="HOST:PORT", reason="loopback")
    lease_seconds: float = setting(5.0, "of a lease", unit="seconds", reason="long enough", gt=0)
    size: int = setting(help="how large")

    @model_validator(mode="after")
    def _consistent(self) -> "ToySettings":
        if self.size > self.lease_seconds * 100:
            raise ValueError("size and lease do not fit")
        return self


def test_a_flag_wins_over_its_variable_and_a_variable_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAKEYA_TOY_SIZE", "1")
    monkeypatch.setenv("KAKEYA_TOY_LEASE_SECONDS", "7.5")
    settings = ToySettings.parse(["--size", "2"])
    assert (settings.size, settings.lease_seconds, settings.bind) == (2, 7.5, "127.0.0.1:1")


class WordSettings(ServiceSettings):
    """Takes any text."""

    model_config = ServiceSettings.configured(command="words")

    directory: Path | None = setting(None, "somewhere")
    word: str = setting("", "anything")


@settings(deadline=None)
@given(text=st.text(st.characters(exclude_characters="\0"), min_size=1).filter(lambda text: text[0] != "-"))
@example(text="two\nlines\n")
@example(text="--word=x")
@example(text="in latin \udce9")
@example(text="None")
def test_any_text_comes_through_a_flag(text: str) -> None:
    assert WordSettings.parse([f"--word={text}", f"--directory={text}"]) == WordSettings(
        word=text, directory=Path(text)
    )
    if not text.startswith("-"):
        assert WordSettings.parse(["--word", text]).word == text


@pytest.mark.parametrize(
    ("flags", "messages"),
    [
        ([], ["kakeya toy: error: --size (KAKEYA_TOY_SIZE): Field required"]),
        (
            ["--size=1", "--bind=x", "--lease-seconds=0"],
            ["--bind (KAKEYA_TOY_BIND)", "not HOST:PORT", "--lease-seconds"],
        ),
        (["--size=1000"], ["kakeya toy: error: settings: ", "size and lease do not fit"]),
        (["--size=1", "--what"], ["unrecognized arguments: --what"]),
    ],
)
def test_problems_are_told_by_flag_and_variable(
    flags: list[str], messages: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        ToySettings.parse(flags)
    assert caught.value.code == 2
    printed = capsys.readouterr().err
    for message in messages:
        assert message in printed


def test_help_says_unit_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        ToySettings.parse(["--help"])
    assert caught.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "--lease-seconds SECONDS of a lease. Default 5 seconds (long enough) [KAKEYA_TOY_LEASE_SECONDS]" in printed


class ToyListenerSettings(ListenerSettings):
    """Listens."""

    model_config = ServiceSettings.configured(command="toy")

    bind: Address = setting("127.0.0.1:1", "where to listen")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tls-cert", "a"], "--tls-cert and --tls-key go together"),
        (["--tls-key", "a"], "--tls-cert and --tls-key go together"),
        (["--tls-client-ca", "a"], "--tls-client-ca needs --tls-cert and --tls-key"),
        (["--max-message-bytes", "1"], "--max-message-bytes"),
        (["--keepalive-seconds", "0"], "--keepalive-seconds"),
    ],
)
def test_half_a_protection_is_refused(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ToyListenerSettings.parse(flags)
    assert message in capsys.readouterr().err
    whole = ToyListenerSettings.parse(["--tls-cert", "a", "--tls-key", "b", "--tls-client-ca", "c"])
    assert str(whole.tls_client_ca) == "c"


def test_a_door_that_is_open_to_everybody_is_refused_and_named() -> None:
    outside = ToyListenerSettings.parse(["--bind", "0.0.0.0:1"])
    with pytest.raises(ValueError, match=r"--bind 0\.0\.0\.0 is outside loopback and there are no keys; --insecure"):
        outside.refuse_open_bind("there are no keys")
    insecure = ToyListenerSettings.parse(["--bind", "0.0.0.0:1", "--insecure"])
    insecure.refuse_open_bind("there are no keys")
    open_door, plaintext = insecure.dangers("0.0.0.0")
    assert "every host that reaches this port may use the service, since there are no keys" in open_door
    assert "plaintext" in plaintext
    assert insecure.dangers("127.0.0.1") == []


def test_what_is_protected_is_not_called_open() -> None:
    protected = ToyListenerSettings.parse(["--bind", "0.0.0.0:1", "--tls-cert", "a", "--tls-key", "b"])
    protected.refuse_open_bind("")
    assert protected.dangers("0.0.0.0") == []


class WordySettings(ServiceSettings):
    """Is told several kinds of words."""

    model_config = ServiceSettings.configured(command="wordy")

    mode: Literal["one", "two"] = setting("one", "how")
    names: Names = setting((), "whom", reason="nobody")
    bind: str = setting("127.0.0.1:1", "where", unit="HOST:PORT")
    file: Path | None = setting(None, "what is read", metavar="BOOK")


def test_help_says_what_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        WordySettings.parse(["--help"])
    printed = " ".join(capsys.readouterr().out.split())
    for typed in ("--mode {one,two} how", "--names TEXT whom", "--bind HOST:PORT where", "--file BOOK what is read"):
        assert typed in printed
