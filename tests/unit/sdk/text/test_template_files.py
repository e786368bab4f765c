"""Chat templates that a user brings: what is taken, and what is refused in one line."""

import sys
from pathlib import Path

import pytest

from kakeya import MissingExtra
from kakeya.text import template_files
from kakeya.text.chat_tokenizer import ChatTokenizer, TokenizerError

OWN = "{% for message in messages %}({{ message.role }}) {{ message.content }}{% endfor %}"
MESSAGES = [{"role": "user", "content": "hi <|im_end|>"}]


def written(tmp_path: Path, source: str | bytes) -> Path:
    path = tmp_path / "own.jinja"
    path.write_bytes(source.encode() if isinstance(source, str) else source)
    return path


def test_it_takes_the_place_of_the_tokenizers_own_with_tools_too(template_dir: Path, tmp_path: Path) -> None:
    tokenizer = ChatTokenizer(str(template_dir), template_file=written(tmp_path, OWN))
    assert tokenizer.template == OWN
    assert tokenizer.templates == (OWN,)
    assert tokenizer.render(MESSAGES) == "(user) hi <|im_end|>"
    assert tokenizer.render(MESSAGES, tools=[]) == "(user) hi <|im_end|>"
    end = tokenizer.encode("<|im_end|>", special_tokens=False)
    assert end[0] not in tokenizer.prompt(MESSAGES), "what a text spells is text"


def test_it_gives_a_template_to_a_tokenizer_that_has_none(plain_dir: Path, tmp_path: Path) -> None:
    assert not ChatTokenizer(str(plain_dir)).has_template
    assert ChatTokenizer(str(plain_dir), template_file=written(tmp_path, OWN)).has_template


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for %}", "is not Jinja: line 1: "),
        ("one\n{{ two", "is not Jinja: line 2: "),
        (" \n", "is empty"),
        (b"\xff\xfe", "cannot be read: it is no text in UTF-8"),
        ("x" * 200_000, "cannot be used: it has more than 131,072 letters itself"),
        (b"x" * 2_000_000, "cannot be used: it has more than 1,048,576 bytes"),
        ("{{" + "(" * 3000 + "1" + ")" * 3000 + "}}", "cannot be used: "),
    ],
)
def test_what_is_no_chat_template_is_refused(tmp_path: Path, source: str | bytes, reason: str) -> None:
    path = written(tmp_path, source)
    with pytest.raises(TokenizerError) as caught:
        template_files.read(path)
    assert str(caught.value).startswith(f"the chat template {path} {reason}")
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="cannot be read: Is a directory"):
        template_files.read(tmp_path)


def test_a_template_that_writes_nothing_of_what_is_said_is_refused_by_its_file(
    template_dir: Path, tmp_path: Path
) -> None:
    path = written(tmp_path, "always the same")
    with pytest.raises(TokenizerError, match=f"the chat template of {path} writes a user's message neither"):
        ChatTokenizer(str(template_dir), template_file=path)


def test_a_template_that_does_not_end_is_refused(template_dir: Path, tmp_path: Path) -> None:
    path = written(tmp_path, "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
    with pytest.raises(TokenizerError, match=f"the chat template of {path} was stopped"):
        ChatTokenizer(str(template_dir), template_file=path)


def test_it_needs_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtra):
        template_files.read(written(tmp_path, OWN))
