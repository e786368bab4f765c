"""Bodies that come compressed (Content-Encoding, RFC 9110), decoded piece by piece so that none outgrows its limit."""

import sys
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final, Protocol

from starlette.datastructures import Headers
from starlette.types import Scope

from kakeya_http_shim.problems import ApiError

_zstd: Final[Any] = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
"""The same code, which Python has itself from then on."""
_GZIP: Final = 16 + zlib.MAX_WBITS
"""zlib's word for the format. That of `deflate` is zlib's own (RFC 1950), whatever the name says."""
_ZSTD_WINDOW: Final = {_zstd.DecompressionParameter.window_log_max: 23}
"""8 MiB, which is all that may be asked of who decodes it (RFC 9659)."""
_ACCEPTED: Final = "gzip, deflate, zstd"
_PART_BYTES: Final = 64 << 10


class _Inflating(Protocol):
    """Decodes one member of a body, a part at a time."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


_INFLATING: Final[dict[str, Callable[[], _Inflating]]] = {
    "gzip": lambda: zlib.decompressobj(_GZIP),
    "x-gzip": lambda: zlib.decompressobj(_GZIP),
    "deflate": lambda: zlib.decompressobj(zlib.MAX_WBITS),
    "zstd": lambda: _zstd.ZstdDecompressor(options=_ZSTD_WINDOW),
}
_OF_ONE_MEMBER: Final = ("deflate",)
"""A gzip file may be several in a row (RFC 1952), and so may frames of zstd (RFC 8878)."""


class Decoder:
    """Decodes one body.

    Args:
        coding: one of those that `decoder_of` knows.
    """

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._inflating = _INFLATING[coding]()

    def parts(self, piece: bytes, *, is_last: bool) -> Iterator[bytes]:
        """What a piece of the body says, at most 64 KiB at a time: who has enough need not take the rest.

        Raises:
            ApiError: the body is not what its header says, or ends too early.
        """
        while True:
            if self._inflating.eof:
                if not piece:
                    return
                self._begin_next_member()
            part = self._inflated(piece)
            piece = self._inflating.unused_data or getattr(self._inflating, "unconsumed_tail", b"")
            if part:
                yield part
            elif not piece:
                break
        if is_last and not self._inflating.eof:
            raise self._fault("and the body ends before that does")

    def _inflated(self, piece: bytes) -> bytes:
        try:
            return self._inflating.decompress(piece, _PART_BYTES)
        except (zlib.error, _zstd.ZstdError) as error:
            raise self._fault("and the body is something else") from error

    def _begin_next_member(self) -> None:
        if self._coding in _OF_ONE_MEMBER:
            raise self._fault("and the body goes on behind its end")
        self._inflating = _INFLATING[self._coding]()

    def _fault(self, what: str) -> ApiError:
        return ApiError(400, f"Content-Encoding says {self._coding}, {what}", code="invalid_content_encoding")


def decoder_of(scope: Scope) -> Decoder | None:
    """What decodes the body of a request; None: it comes as it is. Raises ApiError: not in a way that is known here."""
    given = ",".join(Headers(scope=scope).getlist("content-encoding")).lower()
    codings = [coding for coding in map(str.strip, given.split(",")) if coding not in ("", "identity")]
    if not codings:
        return None
    if len(codings) == 1 and codings[0] in _INFLATING:
        return Decoder(codings[0])
    raise ApiError(
        415,
        f"Content-Encoding: {', '.join(codings)} is not served; send the body as it is, or in one of: {_ACCEPTED}",
        code="unsupported_content_encoding",
        headers={"accept-encoding": _ACCEPTED},
    )
