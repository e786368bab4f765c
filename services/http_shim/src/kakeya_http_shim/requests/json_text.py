"""JSON on its way into this server: said to be JSON, and UTF-8."""

import codecs
import json

from starlette.datastructures import Headers
from starlette.types import Scope

from kakeya_http_shim.problems import ApiError

_MEDIA_TYPE = "application/json"
_CHARSETS = ("utf-8", "utf8", "us-ascii")
"""ASCII is UTF-8, too."""
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"x": "deflate"}
"""What such bodies begin with; no JSON begins so."""


def check_media_type(scope: Scope) -> None:
    """Raises ApiError unless the body is said to be JSON, in UTF-8 if anything is said of that.

    A web page may send anything else to any server without asking it first (a "simple request" of the Fetch standard).
    """
    given = Headers(scope=scope).getlist("content-type")
    media_type, *parameters = given[0].split(";") if len(given) == 1 else [""]
    if media_type.strip().lower() != _MEDIA_TYPE:
        raise ApiError(415, f"send the body with Content-Type: {_MEDIA_TYPE}", code="unsupported_media_type")
    for name, _, value in (parameter.partition("=") for parameter in parameters):
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in _CHARSETS:
            message = f"Content-Type: charset={value.strip()} is not served; JSON is sent as UTF-8 (RFC 8259)"
            raise ApiError(415, message, code="unsupported_charset")


def utf8(body: bytes) -> bytes:
    """The body without a byte-order mark. Raises ApiError where it is compressed, or in another encoding of text."""
    for beginning, coding in _COMPRESSED.items():
        if body.startswith(beginning):
            raise _invalid(f"it looks like {coding}, and Content-Encoding does not say so")
    encoding = json.detect_encoding(body)
    if not encoding.startswith("utf-8"):
        raise _invalid(f"it is {encoding[:6].upper()}; JSON is sent as UTF-8 (RFC 8259)")
    return body.removeprefix(codecs.BOM_UTF8)


def fault(body: bytes, of_parser: str) -> ApiError:
    """Why a body is no JSON.

    Args:
        of_parser: what it said.
    """
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return _invalid(f"it is not UTF-8: byte 0x{body[error.start]:02x} at {error.start}")
    return _invalid(of_parser)


def _invalid(why: str) -> ApiError:
    return ApiError(400, f"the body is not JSON: {why}", code="invalid_json")
