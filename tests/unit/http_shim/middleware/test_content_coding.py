"""What the headers of a body say and what comes must agree: compressed bodies, other encodings of text."""

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd

from kakeya_http_shim.middleware import content_coding
from kakeya_http_shim.problems import ApiError
from kakeya_shared.settings.addresses import HostPort
from tests.unit.http_shim.served import connected
from tests.unit.http_shim.shim import CHAT, HELLO, MODEL, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

BODY = json.dumps({"messages": HELLO, "model": MODEL, "max_tokens": 1}).encode()
JSON = "application/json"


def gzipped(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


def in_members(body: bytes) -> bytes:
    """Two gzip files in a row, which are one (RFC 1952)."""
    return gzipped(body[:5]) + gzipped(body[5:])


def with_checksum(body: bytes) -> bytes:
    return zstd.compress(body, options={zstd.CompressionParameter.checksum_flag: 1})


def with_window(log: int) -> bytes:
    """A frame that asks its reader for so much memory; its size is not said, so that it counts."""
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: log})
    return compressor.compress(b" " * 1000) + compressor.compress(BODY) + compressor.flush()


async def post(shim: Shim, body: bytes, **headers: str) -> tuple[int, str, str]:
    """Status, code and message of the answer."""
    named = {"content-type": JSON} | {name.replace("_", "-"): value for name, value in headers.items()}
    response = await shim.http.post(CHAT, content=body, headers=named)
    error = response.json().get("error", {"code": "", "message": ""})
    if response.status_code == 415 and "content_encoding" in headers:
        assert response.headers["accept-encoding"] == "gzip, deflate, zstd"
    return response.status_code, error["code"], error["message"]


READ = [
    ("gzip", gzipped(BODY)),
    ("GZIP", gzipped(BODY)),
    ("x-gzip", gzipped(BODY)),
    ("gzip", in_members(BODY)),
    ("deflate", zlib.compress(BODY)),
    ("zstd", zstd.compress(BODY)),
    ("ZSTD", with_checksum(BODY)),
    ("zstd", zstd.compress(BODY[:5]) + zstd.compress(BODY[5:])),
    ("zstd", with_window(23)),
    ("zstd", zstd.compress(b" " * 1_000_000 + BODY)),
    ("identity", BODY),
    ("", BODY),
    ("identity, gzip", gzipped(BODY)),
    ("gzip", gzipped(b" " * 1_000_000 + BODY)),
]


REFUSED = [
    ("br", BODY, 415, "unsupported_content_encoding", "Content-Encoding: br"),
    ("zstd, gzip", BODY, 415, "unsupported_content_encoding", "Content-Encoding: zstd, gzip"),
    ("zstd", BODY, 400, "invalid_content_encoding", "Content-Encoding says zstd"),
    ("zstd", gzipped(BODY), 400, "invalid_content_encoding", "Content-Encoding says zstd"),
    ("zstd", zstd.compress(BODY)[:-1], 400, "invalid_content_encoding", "ends before"),
    ("zstd", zstd.compress(BODY) + b"more", 400, "invalid_content_encoding", "something else"),
    ("zstd", with_checksum(BODY)[:-4] + bytes(4), 400, "invalid_content_encoding", "something else"),
    ("zstd", with_window(24), 400, "invalid_content_encoding", "something else"),
    ("zstd", zstd.compress(zstd.compress(BODY)), 400, "invalid_json", "zstd, and Content-Encoding does not say so"),
    ("compress", BODY, 415, "unsupported_content_encoding", "Content-Encoding: compress"),
    ("new", BODY, 415, "unsupported_content_encoding", "Content-Encoding: new"),
    ("gzip, gzip", BODY, 415, "unsupported_content_encoding", "Content-Encoding: gzip, gzip"),
    ("gzip", BODY, 400, "invalid_content_encoding", "Content-Encoding says gzip"),
    ("deflate", BODY, 400, "invalid_content_encoding", "Content-Encoding says deflate"),
    ("gzip", zlib.compress(BODY), 400, "invalid_content_encoding", "Content-Encoding says gzip"),
    ("deflate", gzipped(BODY), 400, "invalid_content_encoding", "Content-Encoding says deflate"),
    ("gzip", gzipped(BODY)[:-1], 400, "invalid_content_encoding", "ends before"),
    ("gzip", gzipped(BODY)[:-8] + bytes(8), 400, "invalid_content_encoding", "something else"),
    ("gzip", gzipped(BODY) + b"more", 400, "invalid_content_encoding", "something else"),
    ("deflate", zlib.compress(BODY) + zlib.compress(BODY), 400, "invalid_content_encoding", "behind its end"),
    ("gzip", gzipped(gzipped(BODY)), 400, "invalid_json", "gzip, and Content-Encoding does not say so"),
    ("", gzipped(BODY), 400, "invalid_json", "gzip, and Content-Encoding does not say so"),
    ("", zlib.compress(BODY), 400, "invalid_json", "deflate, and Content-Encoding does not say so"),
    ("", b"\x28\xb5\x2f\xfd....", 400, "invalid_json", "zstd, and Content-Encoding does not say so"),
]
MEDIA_TYPES = [
    JSON,
    f"{JSON};",
    f"{JSON}; a=b",
    f"{JSON}; charset=utf-8",
    f'{JSON};Charset="UTF-8"',
    f"{JSON}; charset=us-ascii",
]
CHARSETS = ["iso-8859-1", "utf-16", "UTF-16LE", "windows-1252", "utf-7", "", '"utf-16"']
ENCODINGS = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
NOT_UTF8 = ["Grüße".encode("latin-1"), b"\xed\xa0\x80", b"\xc0\xaf", b"\xff"]


# Many cases to one test: a shim takes longer to start than to answer them.


async def test_compressed_bodies_are_read(shim: Shim) -> None:
    for coding, body in READ:
        assert (await post(shim, body, content_encoding=coding))[0] == 200, coding


async def test_other_codings_are_named(shim: Shim) -> None:
    for coding, body, status, code, named in REFUSED:
        got, its_code, message = await post(shim, body, content_encoding=coding)
        assert (got, its_code) == (status, code), named
        assert named in message


@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzipped), ("zstd", zstd.compress)])
async def test_a_bomb_is_refused_before_it_grows(
    runtime: ScriptedRuntime, tokenizer_dir: Path, coding: str, compress: Callable[[bytes], bytes]
) -> None:
    bomb = compress(bytes(64 << 20))
    async with serving_shim(runtime, tokenizer_dir, "--max-body-bytes", "100000") as shim:
        assert len(bomb) < 100_000
        assert (await post(shim, bomb, content_encoding=coding))[:2] == (413, "request_too_large")
    tracemalloc.start()
    try:
        first = next(content_coding.Decoder(coding).parts(bomb, is_last=True))
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(first) == 65536
    assert most_bytes < 1 << 20


async def test_compressed_bodies_of_all_requests_are_held_as_they_are_decoded(
    runtime: ScriptedRuntime, tokenizer_dir: Path
) -> None:
    flags = ("--max-body-bytes", "100000", "--max-held-bytes", "100000")
    async with serving_shim(runtime, tokenizer_dir, *flags) as shim:
        half = gzipped(b" " * 60_000)
        async with connected(HostPort("127.0.0.1", shim.port)) as slow:
            head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\nContent-Encoding: gzip\r\n"
            await slow.send(f"{head}Content-Length: {len(half) + 1}\r\n\r\n".encode() + half)
            while (await post(shim, BODY + b" " * 50_000))[:2] != (503, "too_many_bytes"):
                continue
        await shim.nothing_left()


async def test_a_client_that_leaves_in_a_compressed_body(shim: Shim) -> None:
    async with connected(HostPort("127.0.0.1", shim.port)) as client:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\nContent-Encoding: gzip\r\n"
        await client.send(f"{head}Content-Length: 1000\r\n\r\n".encode() + gzipped(BODY)[:10])
    assert (await post(shim, BODY))[0] == 200


@pytest.mark.parametrize(
    ("coding", "whole"),
    [("gzip", gzipped(bytes(3 * 65536))), ("zstd", zstd.compress(bytes(65536)) + zstd.compress(bytes(2 * 65536)))],
    ids=["gzip", "zstd"],
)
def test_what_is_left_over_in_the_decoder_is_looked_at(coding: str, whole: bytes) -> None:
    """A piece may end where a part is full, and what is wrong may come after it."""
    for cut in range(len(whole)):
        decoder = content_coding.Decoder(coding)
        parts = [*decoder.parts(whole[:cut], is_last=False), *decoder.parts(whole[cut:], is_last=True)]
        assert b"".join(parts) == bytes(3 * 65536)
        assert max(map(len, parts)) <= 65536
    with pytest.raises(ApiError, match="ends before"):
        list(content_coding.Decoder(coding).parts(b"", is_last=True))


async def test_media_types_that_are_read(shim: Shim) -> None:
    for media_type in MEDIA_TYPES:
        assert (await post(shim, BODY, content_type=media_type))[0] == 200, media_type
    assert (await post(shim, b"\xef\xbb\xbf" + BODY))[0] == 200, "a byte-order mark"


async def test_other_charsets_are_named(shim: Shim) -> None:
    for charset in CHARSETS:
        status, code, message = await post(shim, BODY, content_type=f"{JSON}; charset={charset}")
        assert (status, code) == (415, "unsupported_charset")
        assert f"charset={charset} " in message


async def test_two_media_types_are_none(shim: Shim) -> None:
    headers = [("content-type", JSON), ("content-type", f"{JSON}; charset=utf-16")]
    response = await shim.http.post(CHAT, content=BODY, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")


async def test_other_encodings_of_text_are_named(shim: Shim) -> None:
    for encoding in ENCODINGS:
        status, code, message = await post(shim, BODY.decode().encode(encoding))
        assert (status, code) == (400, "invalid_json")
        assert f"it is {encoding[:6].upper()}" in message


async def test_what_is_not_utf8_is_named_with_its_place(shim: Shim) -> None:
    for text in NOT_UTF8:
        body = BODY.replace(b"Hello", text)
        at = next(place for place, byte in enumerate(body) if byte > 127)
        status, code, message = await post(shim, body)
        assert (status, code) == (400, "invalid_json")
        assert f"it is not UTF-8: byte 0x{body[at]:02x} at {at}" in message
