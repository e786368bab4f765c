"""The URL of a Redis server, as flags spell it: read strictly, since clients of Redis drop in silence what they do not
understand.

No message repeats a part of the URL: where a letter of the password is not escaped, any part may be of the password.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic import AfterValidator

DEFAULT_PORT = 6379
TIMEOUT_SECONDS = 5.0
"""How long an answer may take by default: a busy machine whose disk syncs each write, or that begins a TLS connection,
takes a second at times; what is silent for longer is down."""

SUPPORTED = (
    "supported: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], rediss:// for TLS, unix://[[USER]:PASSWORD@]/PATH[?db=DB]"
)
_NO_PLACE = "no host, or no port between 1 and 65535"
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_DB = re.compile(r"[0-9]{1,9}")
_HOST = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")  # a name, IPv4, or IPv6 in brackets
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TLS_OPTIONS = {
    "ssl_ca_certs": "",
    "ssl_certfile": "",
    "ssl_keyfile": "",
    "ssl_cert_reqs": "none|optional|required",
    "ssl_check_hostname": "true|false",
}


@dataclass(frozen=True)
class RedisUrl:
    """Attributes:
    host, port: "" and 0 where it is a Unix socket.
    path: of the Unix socket; "" where it is a host.
    tls: None: plaintext.
    """

    host: str
    port: int
    path: str
    db: int
    username: str
    password: str = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> "RedisUrl":
        """Reads one of the forms in SUPPORTED; `rediss` takes the query options in _TLS_OPTIONS.

        Raises:
            ValueError: it is something else, or a file that it names cannot be used.
        """
        scheme = _scheme(text)
        if any(letter <= " " or letter == "\x7f" for letter in text):  # urlsplit drops some of them
            raise ValueError(f"a blank or a control character in it (%20 stands for a blank); {SUPPORTED}")
        parts, host, port = _split(text)
        if parts.fragment or _ESCAPE.search(text):
            raise ValueError(_unreadable("a `#`, or a `%` that begins no escape"))
        options = _options(parts, scheme)
        place = _socket(parts, host) if scheme == "unix" else _host(host, port)
        return cls(
            *place,
            db=_db(options.get("db", ""), "" if scheme == "unix" else parts.path),
            username=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            tls=_tls(options) if scheme == "rediss" else None,
        )


def _scheme(text: str) -> str:
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    if scheme in ("redis", "rediss", "unix"):
        return scheme
    if "sentinel" in scheme or "cluster" in scheme:
        raise ValueError(
            "neither Sentinel nor Cluster is asked for the server: name one address, such as that of a proxy "
            f"which follows the primary; {SUPPORTED}"
        )
    raise ValueError(f"not the URL of a Redis; {SUPPORTED}")


def _split(text: str) -> tuple[SplitResult, str, int | None]:
    """The parts of the URL, its host and its port."""
    try:
        parts = urlsplit(text)
        several = "," in parts.netloc.rpartition("@")[2]
        host, port = parts.hostname or "", None if several else parts.port
    except ValueError:
        raise ValueError(_unreadable(_NO_PLACE)) from None
    if several:
        raise ValueError(f"several hosts: one is taken; {SUPPORTED}")
    return parts, host, port


def _unreadable(what: str) -> str:
    escapes = "in a user or password, letters such as / ? # @ : % are written as %2F %3F %23 %40 %3A %25"
    return f"{what}; {escapes}; {SUPPORTED}"


def _host(host: str, port: int | None) -> tuple[str, int, str]:
    if not _HOST.fullmatch(host) or port == 0:
        raise ValueError(_unreadable(_NO_PLACE))
    return host, port or DEFAULT_PORT, ""


def _socket(parts: SplitResult, host: str) -> tuple[str, int, str]:
    if host or parts.path in ("", "/"):
        raise ValueError(f"a Unix socket is named by its absolute path, unix:///PATH; {SUPPORTED}")
    return "", 0, unquote(parts.path)


def _options(parts: SplitResult, scheme: str) -> Mapping[str, str]:
    known = {"db": "", **(_TLS_OPTIONS if scheme == "rediss" else {})}
    try:
        given = parse_qsl(parts.query, strict_parsing=True) if parts.query else []
    except ValueError:
        given = [("", "")]
    for name, value in given:
        if name.startswith("socket_"):
            raise ValueError("time-outs are no part of the URL: --redis-timeout-seconds sets them")
        if name not in known:
            raise ValueError(
                f"an option that is not known; with {scheme}:// known are: {', '.join(known)}; {SUPPORTED}"
            )
        if known[name] and value.lower() not in known[name].split("|"):
            raise ValueError(f"the option {name} is one of {known[name]}")
    if len(dict(given)) != len(given):
        raise ValueError("an option is given twice")
    return dict(given)


def _db(option: str, path: str) -> int:
    given = option or path.removeprefix("/")
    if (option and path.strip("/")) or (given and not _DB.fullmatch(given)):
        raise ValueError(_unreadable("the database is one number, 0 for the first"))
    return int(given or 0)


def _tls(options: Mapping[str, str]) -> ssl.SSLContext:
    certificate, key = options.get("ssl_certfile"), options.get("ssl_keyfile")
    if key and not certificate:
        raise ValueError("ssl_keyfile needs ssl_certfile")
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
        if certificate:
            context.load_cert_chain(certificate, key, password="")  # where one is needed, nobody is asked for it
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"the files of ssl_ca_certs, ssl_certfile and ssl_keyfile cannot be used: {reason}") from error
    requirement = options.get("ssl_cert_reqs", "required").lower()
    checks_name = options.get("ssl_check_hostname", "true").lower() == "true"
    context.check_hostname = checks_name and requirement != "none"
    context.verify_mode = ssl.VerifyMode[f"CERT_{requirement.upper()}"]
    return context


def _checked(text: str) -> str:
    RedisUrl.parse(text.strip())
    return text.strip()


CheckedRedisUrl = Annotated[str, AfterValidator(_checked)]
"""A setting that is the URL of one Redis server, without what surrounds it in a file, such as the end of its line."""
