"""The URL of a Redis, as flags spell it: read strictly, since clients of Redis drop in silence what they do not
understand.

No message repeats a part of the URL: where a letter of the password is not escaped, any part may be of the password.
"""

import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import AfterValidator

DEFAULT_PORT, SENTINEL_PORT = 6379, 26379
TIMEOUT_SECONDS = 5.0
"""How long an answer may take by default: a busy machine whose disk syncs each write, or that begins a TLS connection,
takes a second at times; what is silent for longer is down."""

SUPPORTED = (
    "supported: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], rediss:// for TLS, unix://[[USER]:PASSWORD@]/PATH[?db=DB], "
    "redis+sentinel://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/NAME[/DB], "
    "redis+cluster://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]"
)
_NO_PLACE = "no host, or no port between 1 and 65535"
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_NAME = re.compile(r"[A-Za-z0-9._-]+")  # as Sentinel itself takes it
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
_SENTINEL_OPTIONS = {"sentinel_username": "", "sentinel_password": ""}


class Kind(StrEnum):
    """What stands at the hosts of a URL."""

    SERVER = "server"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True)
class RedisUrl:
    """Attributes:
    host, port: "" and 0 where it is a Unix socket; the first of `places`.
    path: of the Unix socket; "" where it is a host.
    tls: None: plaintext.
    places: all hosts and ports: the server, some Sentinels, or some nodes of a Cluster.
    name: of the primary, as Sentinel knows it; "" without Sentinel.
    options: those of TLS, as they stand in the URL.
    sentinel_username, sentinel_password: for the Sentinels; username and password are for the servers.
    """

    host: str
    port: int
    path: str
    db: int
    username: str
    password: str = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False, compare=False)
    kind: Kind = Kind.SERVER
    places: tuple[tuple[str, int], ...] = ()
    name: str = ""
    options: tuple[tuple[str, str], ...] = ()
    sentinel_username: str = ""
    sentinel_password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str) -> "RedisUrl":
        """Reads one of the forms in SUPPORTED; each has one with `rediss`, which takes the query options in
        _TLS_OPTIONS, and with Sentinel those in _SENTINEL_OPTIONS.

        Raises:
            ValueError: it is something else, or a file that it names cannot be used.
        """
        scheme = _scheme(text)
        if any(letter <= " " or letter == "\x7f" for letter in text):  # urlsplit drops some of them
            raise ValueError(f"a blank or a control character in it (%20 stands for a blank); {SUPPORTED}")
        kind = Kind(scheme.partition("+")[2] or Kind.SERVER)
        parts, places = _split(text, kind)
        if parts.fragment or _ESCAPE.search(text):
            raise ValueError(_unreadable("a `#`, or a `%` that begins no escape"))
        options = _options(parts, scheme)
        path = _socket(parts, places) if scheme == "unix" else ""
        if not path:
            places = _checked_places(places, SENTINEL_PORT if kind is Kind.SENTINEL else DEFAULT_PORT)
        name, db = _name(parts.path) if kind is Kind.SENTINEL else ("", "" if path else parts.path)
        url = cls(
            *(("", 0) if path else places[0]),
            path=path,
            db=_db(options.get("db", ""), db),
            username=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            tls=_tls(options) if scheme.startswith("rediss") else None,
            kind=kind,
            places=() if path else places,
            name=name,
            options=tuple((option, value) for option, value in options.items() if option in _TLS_OPTIONS),
            sentinel_username=options.get("sentinel_username", ""),
            sentinel_password=options.get("sentinel_password", ""),
        )
        if kind is Kind.CLUSTER and url.db:
            raise ValueError(f"a Cluster has no databases but the first; {SUPPORTED}")
        return url

    def server(self, host: str, port: int) -> str:
        """The URL of one of its servers, with the same credentials, database and TLS."""
        return self._at(host, port, self.username, self.password, f"/{self.db}")

    def sentinel(self, host: str, port: int) -> str:
        """The URL of one of its Sentinels, which speak as servers do."""
        return self._at(host, port, self.sentinel_username, self.sentinel_password, "")

    def _at(self, host: str, port: int, username: str, password: str, path: str) -> str:
        scheme = "redis" if self.tls is None else "rediss"
        user = f"{quote(username, safe='')}:{quote(password, safe='')}@" if password else ""
        options = f"?{urlencode(self.options)}" if self.options else ""
        return f"{scheme}://{user}{f'[{host}]' if ':' in host else host}:{port}{path}{options}"


def _scheme(text: str) -> str:
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    if scheme not in _SCHEMES:
        raise ValueError(f"not the URL of a Redis; {SUPPORTED}")
    return scheme


def _split(text: str, kind: Kind) -> tuple[SplitResult, tuple[tuple[str, int], ...]]:
    """The parts of the URL; its hosts and ports, "" and 0 where there are none."""
    try:
        parts = urlsplit(text)
        hosts = parts.netloc.rpartition("@")[2].split(",")
        each = [urlsplit(f"//{host}") for host in hosts]
        places = tuple((one.hostname or "", 0 if one.port is None else one.port or -1) for one in each)
    except ValueError:
        raise ValueError(_unreadable(_NO_PLACE)) from None
    if len(places) > 1 and kind is Kind.SERVER:
        raise ValueError(f"several hosts: one is taken without +sentinel or +cluster; {SUPPORTED}")
    return parts, places


def _checked_places(places: Sequence[tuple[str, int]], default_port: int) -> tuple[tuple[str, int], ...]:
    if any(not _HOST.fullmatch(host) or port < 0 for host, port in places):
        raise ValueError(_unreadable(_NO_PLACE))
    return tuple((host, port or default_port) for host, port in places)


def _name(path: str) -> tuple[str, str]:
    """Of the primary, and its database."""
    name, _, db = path.removeprefix("/").partition("/")
    if not _NAME.fullmatch(name):
        raise ValueError(_unreadable("behind Sentinel's hosts stands the primary's name, such as /mymaster"))
    return name, db


def _unreadable(what: str) -> str:
    escapes = "in a user or password, letters such as / ? # @ : % are written as %2F %3F %23 %40 %3A %25"
    return f"{what}; {escapes}; {SUPPORTED}"


def _socket(parts: SplitResult, places: Sequence[tuple[str, int]]) -> str:
    if places[0][0] or parts.path in ("", "/"):
        raise ValueError(f"a Unix socket is named by its absolute path, unix:///PATH; {SUPPORTED}")
    return unquote(parts.path)


def _options(parts: SplitResult, scheme: str) -> Mapping[str, str]:
    known = {"db": "", **(_TLS_OPTIONS if scheme.startswith("rediss") else {})}
    if scheme.endswith("sentinel"):
        known |= _SENTINEL_OPTIONS
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
"""A setting that is the URL of a Redis, without what surrounds it in a file, such as the end of its line."""
