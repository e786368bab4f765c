"""Who is compared with, as flags say it."""

from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from kakeya.bench.compare.rival import Rival, rival, rival_fields


def test_a_name_and_a_url() -> None:
    assert rival("vLLM 0.1=http://127.0.0.1:8000/v1/") == Rival("vLLM 0.1", "http://127.0.0.1:8000/v1", drop=1)
    assert rival("them=https://example.com").url == "https://example.com"


def test_all_options(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-123\n")
    text = f"a=http://h/v1,model=m/n,context=2048,keep=0,drop=7,every=mark,kv=64,pid=9,key-file={key}"
    found = rival(text)
    assert found == Rival(
        "a", "http://h/v1", model="m/n", context=2048, keep=0, drop=7, plays_every_turn=False, kv_tokens=64, pid=9,
        key="sk-123",
    )  # fmt: skip
    assert "sk-123" not in repr(found)


def test_half_of_a_context_is_dropped_at_a_time() -> None:
    assert (rival("a=http://h,context=2049").drop, rival("a=http://h,context=2049").keep) == (1024, 4)
    assert rival("a=http://h,every=turn").plays_every_turn


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("=http://h", "'' cannot be a name"),
        ("kakeya=http://h", "'kakeya' cannot be a name"),
        ("a/b=http://h", "'a/b' cannot be a name"),
        ("a", "'' is no URL such as"),
        ("a=ftp://h", "'ftp://h' is no URL"),
        ("a=http://", "'http://' is no URL"),
        ("a=http://h:x", "'http://h:x' is no URL"),
        ("a=http://h:0", "'http://h:0' is no URL"),
        ("a=http://h,turns=3", "a: there is no option 'turns', only model, context, keep"),
        ("a=http://h,context=many", "a: context=many: not a whole number from 2 on"),
        ("a=http://h,drop=0", "a: drop=0: not a whole number from 1 on"),
        ("a=http://h,every=day", "a: every=day: `turn` or `mark`"),
        ("a=http://h,key-file=/no/such", "a: key-file=/no/such: No such file"),
    ],
)
def test_what_cannot_be_used(text: str, says: str) -> None:
    with pytest.raises(ArgumentTypeError) as error:
        rival(text)
    assert says in str(error.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"sk\xff", b"sk\n123"])
def test_files_that_hold_no_key_are_not_quoted(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(ArgumentTypeError, match=r"holds no key$"):
        rival(f"a=http://h,key-file={file}")


def test_fields() -> None:
    assert rival_fields('a={"logprobs": 1, "x": "y=z"}') == ("a", {"logprobs": 1, "x": "y=z"})
    with pytest.raises(ArgumentTypeError, match=r"a: '{' is no JSON: "):
        rival_fields("a={")
    with pytest.raises(ArgumentTypeError, match=r"a: '\[\]' is no JSON object"):
        rival_fields("a=[]")
