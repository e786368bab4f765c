"""Bodies that come compressed (Content-Encoding, RFC 9110), decoded piece by piece so that none outgrows its limit."""

import zlib
from collections.abc import Iterator

from starlette.datastructures import Headers
from starlette.types import Scope

from kakeya_http_shim.problems import ApiError

_GZIP = 16 + zlib.MAX_WBITS
_WINDOW_BITS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}
"""zlib's word for the format; `deflate` is the zlib format (RFC 1950), whatever its name says."""
_ACCEPTED = "gzip, deflate"
_PART_BYTES = 64 << 10


class Decoder:
    """Decodes one body.

    Args:
        coding: one of those that `decoder_of` knows.
    """

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._inflating = zlib.decompressobj(_WINDOW_BITS[coding])

    def parts(self, piece: bytes, *, is_last: bool) -> Iterator[bytes]:
        """What a piece of the body says, at most 64 KiB at a time: who has enough need not take the rest.

        Raises:
            ApiError: the body is not what its header says, or ends too early.
        """
        while piece:
            if self._inflating.eof:
                self._begin_next_member()
            yield self._inflated(piece)
            piece = self._inflating.unused_data or self._inflating.unconsumed_tail
        while part := self._inflated(b""):  # what did not fit into the last part
            yield part
        if is_last and not self._inflating.eof:
            raise self._fault("and the body ends before that does")

    def _inflated(self, piece: bytes) -> bytes:
        try:
            return self._inflating.decompress(piece, _PART_BYTES)
        except zlib.error as error:
            raise self._fault("and the body is something else") from error

    def _begin_next_member(self) -> None:
        """A gzip file may be several in a row (RFC 1952)."""
        if _WINDOW_BITS[self._coding] != _GZIP:
            raise self._fault("and the body goes on behind its end")
        self._inflating = zlib.decompressobj(_GZIP)

    def _fault(self, what: str) -> ApiError:
        return ApiError(400, f"Content-Encoding says {self._coding}, {what}", code="invalid_content_encoding")


def decoder_of(scope: Scope) -> Decoder | None:
    """What decodes the body of a request; None: it comes as it is. Raises ApiError: not in a way that is known here."""
    given = ",".join(Headers(scope=scope).getlist("content-encoding")).lower()
    codings = [coding for coding in map(str.strip, given.split(",")) if coding not in ("", "identity")]
    if not codings:
        return None
    if len(codings) == 1 and codings[0] in _WINDOW_BITS:
        return Decoder(codings[0])
    raise ApiError(
        415,
        f"Content-Encoding: {', '.join(codings)} is not served; send the body as it is, or in one of: {_ACCEPTED}",
        code="unsupported_content_encoding",
        headers={"accept-encoding": _ACCEPTED},
    )
