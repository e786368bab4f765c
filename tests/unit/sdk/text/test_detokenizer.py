"""Text from tokens as they come: whole characters, as the whole decodes, and at a cost that does not grow."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers.convert_slow_tokenizer import bytes_to_unicode

from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya.text.detokenizer import Detokenizer
from tests.unit.sdk.chatting import encode

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
UNKNOWN = 300
"""An id that none of the tokenizers has: it decodes to nothing."""
SPECIAL = 261
"""An id that is hidden by the tokenizer of many bytes."""

Decode = Callable[[list[int]], str]


@pytest.fixture(scope="session")
def tiny(template_dir: Path) -> ChatTokenizer:
    return ChatTokenizer(str(template_dir))


@pytest.fixture(scope="session")
def of_many_bytes() -> Decode:
    """Of a byte-level tokenizer: 0 to 255 are bytes, then come tokens that begin or end within characters."""
    letters = bytes_to_unicode()
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += ["x€".encode()[:2], "€€".encode()[1:5], "x€".encode()[:3], "€x".encode()[2:], "𝄞€".encode()[2:6]]
    vocabulary = {"".join(letters[byte] for byte in token): id_ for id_, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    assert tokenizer.add_special_tokens(["<s>"]) == 1
    assert tokenizer.token_to_id("<s>") == SPECIAL
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer.decode


@pytest.fixture(scope="session")
def like_sentencepiece() -> Decode:
    """Of a tokenizer with byte fallback: 0 to 255 are bytes, the others words, a blank and a special token."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁Hi": 256, "you": 257, "▁": 258, "<s>": 259}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer.decode


def _pieces(decode: Decode, token_ids: Sequence[int]) -> tuple[list[str], str]:
    detokenizer = Detokenizer(decode)
    return [detokenizer.push(token_id) for token_id in token_ids], detokenizer.flush()


def test_text_comes_in_whole_characters(tiny: ChatTokenizer) -> None:
    text = "añ€𝄞 ok\n漢字"
    pieces, rest = _pieces(tiny.decode, encode(tiny, text))
    assert "".join(pieces) == text
    assert rest == ""
    assert all(REPLACEMENT not in piece for piece in pieces)


def test_bytes_that_are_no_text_become_replacement_characters(tiny: ChatTokenizer) -> None:
    half = encode(tiny, "€")[:2]
    pieces, rest = _pieces(tiny.decode, [*half, *encode(tiny, "x"), *half])
    assert pieces == ["", "", f"{REPLACEMENT}x", "", ""]
    assert rest == REPLACEMENT


ids = st.one_of(st.integers(0, 257), st.just(UNKNOWN))
runs = st.tuples(ids, st.integers(1, 9)).map(lambda run: [run[0]] * run[1])


@given(runs=st.lists(runs), text=st.text(max_size=20), start=st.integers(0, 3))
@example(runs=[], text="€\N{REPLACEMENT CHARACTER}€", start=1)
def test_pieces_give_what_the_whole_decodes_to(
    tiny: ChatTokenizer, runs: list[list[int]], text: str, start: int
) -> None:
    token_ids = [id_ for run in runs for id_ in run] + encode(tiny, text)[start:]
    pieces, rest = _pieces(tiny.decode, token_ids)
    assert "".join(pieces) + rest == tiny.decode(token_ids)


utf8 = st.sampled_from([*"€𝄞x".encode()])


@given(st.lists(st.one_of(utf8, st.integers(0, SPECIAL)), max_size=40))
@example([226, 130, 260, 226, 226])
def test_tokens_may_begin_and_end_within_characters(of_many_bytes: Decode, token_ids: list[int]) -> None:
    pieces, rest = _pieces(of_many_bytes, token_ids)
    assert "".join(pieces) + rest == of_many_bytes(token_ids)


@given(st.lists(st.one_of(st.integers(256, 259), st.sampled_from("ñ€𝄞\n")), max_size=30))
@example([259, 258, 259, 256])
@example([258] * 9)
@example([*"𝄞𝄞𝄞"])
def test_words_with_blanks_and_characters_in_bytes(like_sentencepiece: Decode, parts: list[int | str]) -> None:
    token_ids = [id_ for part in parts for id_ in (part.encode() if isinstance(part, str) else [part])]
    pieces, rest = _pieces(like_sentencepiece, token_ids)
    assert "".join(pieces) + rest == like_sentencepiece(token_ids)
    assert rest == ""
    assert REPLACEMENT not in "".join(pieces)


def test_a_byte_that_is_no_text_spoils_no_later_character(like_sentencepiece: Decode) -> None:
    pieces, rest = _pieces(like_sentencepiece, [256, 0xFF, *"€€€".encode()])
    assert "".join(pieces) == f"Hi{REPLACEMENT * 4}€€"
    assert rest == ""


@pytest.mark.parametrize(
    "run",
    [
        [SPECIAL],
        [UNKNOWN],
        [SPECIAL, UNKNOWN],
        "€".encode()[:1],
        "€".encode()[:2],
        "€".encode()[1:],
        b"\xff",
        b"x",
        "€".encode(),
        [*"€".encode()[:1], SPECIAL],
    ],
)
@pytest.mark.parametrize("first", [b"", b"x"])
def test_a_long_run_costs_the_same_for_each_token(of_many_bytes: Decode, first: bytes, run: Sequence[int]) -> None:
    num_decoded = 0

    def decode(token_ids: list[int]) -> str:
        nonlocal num_decoded
        num_decoded += len(token_ids)
        return of_many_bytes(token_ids)

    token_ids = [*first, *[*run] * (20_000 // len(run))]
    pieces, rest = _pieces(decode, token_ids)
    assert num_decoded < 20 * len(token_ids)
    assert "".join(pieces) + rest == decode(token_ids)


@pytest.mark.parametrize("run", ["€".encode()[:1], b"\xff"])
def test_a_byte_that_never_becomes_text_holds_nothing_back(of_many_bytes: Decode, run: bytes) -> None:
    pieces, rest = _pieces(of_many_bytes, [*run * 10])
    assert pieces == [""] * 3 + [REPLACEMENT] * 7
    assert rest == REPLACEMENT * 3
