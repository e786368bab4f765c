"""`kakeya http`: what it can be told, and what it refuses to be told."""

import pytest

from kakeya_http_shim.command import without_launcher_flags
from kakeya_http_shim.settings import HttpSettings


def test_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = HttpSettings.parse(
        ["--tokenizer", "a=/x", "--tokenizer", "b=owner/name", "--served-model-name", "c=a,d=a"]
    )
    assert settings.tokenizers == {"a": "/x", "b": "owner/name"}
    assert settings.aliases == {"c": "a", "d": "a"}
    assert HttpSettings.parse(["--tool-parser", "a=hermes,b=llama"]).tool_families == {"a": "hermes", "b": "llama"}
    monkeypatch.setenv("KAKEYA_HTTP_TOKENIZER", "e=/y, f=/z")
    assert HttpSettings.parse([]).tokenizers == {"e": "/y", "f": "/z"}


@pytest.mark.parametrize(
    ("flags", "hosts"),
    [
        ((), {"localhost", "127.0.0.1", "::1"}),
        (("--bind", "127.0.0.2:1"), {"localhost", "127.0.0.1", "::1", "127.0.0.2"}),
        (("--allowed-hosts", "Chat.example.com,b"), {"chat.example.com", "b"}),
        (("--allowed-hosts", "*"), set()),
        (("--bind", "0.0.0.0:1", "--insecure"), set()),
    ],
)
def test_hosts(flags: tuple[str, ...], hosts: set[str]) -> None:
    assert HttpSettings.parse(list(flags)).hosts == hosts


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tokenizer", "a"], "'a' is not NAME=VALUE"),
        (["--tool-parser", "hermes"], "'hermes' is not NAME=VALUE"),
        (["--tool-parser", "a=glm"], "'glm' is no family of tool calls; there are hermes, qwen3-xml, llama, mistral"),
        (["--cors-origins", "chat.example.com"], "neither `*` nor an origin"),
        (["--cors-origins", "https://a/b"], "neither `*` nor an origin"),
        (["--sunset", "2027-01-01"], "need --deprecated-since"),
        (["--successor", "https://a"], "need --deprecated-since"),
        (["--deprecated-since", "2027-01-01", "--sunset", "2026-12-31"], "is before --deprecated-since"),
        (["--deprecated-since", "2027-01-01", "--successor", "https://a b"], "must be a URL"),
        (["--router-cert", "a"], "go together"),
        (["--router-cert", "a", "--router-key", "b"], "needs --router-ca"),
        (["--bind", "0.0.0.0:1"], "--insecure does it nevertheless"),
        (["--max-held-bytes", "1024"], "at least --max-body-bytes"),
        (["--max-in-flight", "0"], "greater than or equal to 1"),
        (["--queue-max-wait-s", "-1"], "greater than or equal to 0"),
    ],
)
def test_refusals(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        HttpSettings.parse(flags)
    assert raised.value.code == 2
    assert said in capsys.readouterr().err


def test_a_sunset_on_the_day_itself() -> None:
    flags = ["--deprecated-since", "2027-01-01", "--sunset", "2027-01-01", "--successor", "https://a/b"]
    assert HttpSettings.parse(flags).successor == "https://a/b"


def test_flags_of_the_earlier_launcher(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--block-size", "8", "--bind", "a:1", "--num-diffusion-steps=4", "--block-size"]
    assert without_launcher_flags(argv) == ["--bind", "a:1"]
    assert capsys.readouterr().err.splitlines() == [
        "kakeya http: warning: --block-size, --num-diffusion-steps: of the earlier launcher, without effect here"
    ]
    assert without_launcher_flags(["--bind", "a:1"]) == ["--bind", "a:1"]
    assert not capsys.readouterr().err
