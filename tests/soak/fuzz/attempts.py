"""One call of the fuzzer: what is sent, and when the client loses interest."""

import random
from dataclasses import dataclass

from google.protobuf.message import Message

from kakeya_stubs.v1 import runtime_pb2
from tests.integration.processes import bearer
from tests.soak.fuzz.known import Known
from tests.soak.fuzz.methods import ADMIN, HEALTH, METHODS, REGISTRY, RUNTIME, VERIFIER, WEIGHTS, Method
from tests.soak.fuzz.request_bytes import request_bytes

Metadata = tuple[tuple[str, str | bytes], ...]
_MAX_METADATA_BYTES = 16384


@dataclass(frozen=True)
class Credentials:
    """Secrets of the fuzzer.

    Attributes:
        sessions: key of the fuzzer's tenant.
        admin: key with the scope admin.
        join: token for the fuzzer's pool only.
    """

    sessions: str
    admin: str
    join: str

    def right(self, service: str) -> str:
        return {RUNTIME: self.sessions, ADMIN: self.admin, REGISTRY: self.join}.get(service, "")

    def needed(self, service: str) -> bool:
        return service not in (VERIFIER, HEALTH)


@dataclass(frozen=True)
class CallMetadata:
    """Attributes:
    admits: whether the credentials are the right ones.
    """

    kind: str
    pairs: Metadata
    admits: bool


_OF_METADATA = {"plain": 86, "no key": 3, "wrong key": 5, "garbage": 5, "binary": 0.5, "oversize": 0.5}
_GARBAGE: tuple[tuple[str, str | bytes], ...] = (
    ("traceparent", "00-" + "0" * 32 + "-" + "0" * 16 + "-00"),
    ("traceparent", "ff-zz"),
    ("traceparent", "00-" + "f" * 4000),
    ("tracestate", "a=b," * 600),
    ("tracestate", "=,=,"),
    ("baggage", "%00=%ff;;;," * 100),
    ("traceparent-bin", b"\x00\xff\xfe"),
    ("grpc-status-details-bin", b"\xff" * 300),
    ("grpc-accept-encoding", "nonsense"),
    ("x-request-id", "~" * 3000),
    ("content-language", "{}"),
    ("authorization-bin", b"Bearer \x00"),
    ("te", "gzip"),
)


def call_metadata(method: Method, credentials: Credentials, chance: random.Random) -> CallMetadata:
    service = method.service
    kind = chance.choices(list(_OF_METADATA), list(_OF_METADATA.values()))[0]
    right = bearer(credentials.right(service)) if credentials.right(service) else ()
    match kind:
        case "no key":
            return CallMetadata(kind, (), admits=not credentials.needed(service))
        case "wrong key":
            pairs = _wrong(service, credentials, chance)
            admits = _is_watched_by_a_tenant(method, pairs, credentials) or not credentials.needed(service)
            return CallMetadata(kind, pairs, admits)
        case "garbage":
            return CallMetadata(kind, (*right, *chance.sample(_GARBAGE, 3)), admits=True)
        case "binary":
            return CallMetadata(kind, (*right, ("x-fuzz-bin", chance.randbytes(5_000))), admits=True)
        case "oversize":
            size = chance.choice((_MAX_METADATA_BYTES + 1, 8 * _MAX_METADATA_BYTES))
            return CallMetadata(kind, (*right, ("x-fuzz", "a" * size)), admits=True)
    return CallMetadata(kind, right, admits=True)


def _is_watched_by_a_tenant(method: Method, pairs: Metadata, credentials: Credentials) -> bool:
    """Of the operators' calls Watch alone is a tenant's, too: it sees its own sessions."""
    return (method.service, method.name) == (ADMIN, "Watch") and pairs[0] == bearer(credentials.sessions)[0]


def _wrong(service: str, credentials: Credentials, chance: random.Random) -> Metadata:
    right = credentials.right(service) or "kakeya_key_000000000000_" + "A" * 43
    other = {RUNTIME: credentials.join, ADMIN: credentials.sessions, REGISTRY: credentials.admin}.get(service, "")
    prefix, name, identity, secret = right.split("_", 3)
    near = (
        *(other, right[:-1], f"{right}A", right.swapcase(), f" {right} {right}", "_" * 50, "k" * 3_000, ""),
        f"{prefix}_{name}_{chance.getrandbits(48):012x}_{secret}",
        *(f"{prefix}_{name}_{identity}_{another}" for another in ("A" * 43, "")),
    )
    text = chance.choice((*(f"Bearer {each}" for each in near), f"Basic {right}", right, "Bearer", ""))
    return (("authorization", text),) * (2 if chance.random() < 0.1 else 1)


_WRONG_PATH_SHARE = 0.02
_CANCELLED_SHARE = 0.06
_HASTY_SHARE = 0.05
_LEFT_SHARE = 0.2  # of streams: left after a token or two
_TIMEOUT_SECONDS = 4.0


@dataclass(frozen=True)
class Attempt:
    """Attributes:
    number: of the call in this run; with the run's seed it decides everything else.
    method: None where no such method exists.
    message: what the payload says, if anything.
    timeout_seconds: the call's deadline.
    cancel_after_seconds: None: never.
    num_reads: of a stream, after which it is left; None: to its end.
    """

    number: int
    path: str
    method: Method | None
    kind: str
    payload: bytes
    message: Message | None
    metadata: CallMetadata
    timeout_seconds: float = _TIMEOUT_SECONDS
    cancel_after_seconds: float | None = None
    num_reads: int | None = None

    def __str__(self) -> str:
        shown = self.payload[:200].hex() + ("..." if len(self.payload) > 200 else "")
        return f"call {self.number} of {self.path} ({self.kind}, metadata {self.metadata.kind}): {shown}"


def attempt(seed: int, number: int, known: Known, credentials: Credentials) -> Attempt:
    chance = random.Random(f"{seed}/{number}")
    method = chance.choices(METHODS, WEIGHTS)[0]
    kind, payload, message = request_bytes(method, known, chance)
    metadata = call_metadata(method, credentials, chance)
    if chance.random() < _WRONG_PATH_SHARE:
        return Attempt(number, _wrong_path(method, chance), None, "wrong path", payload, None, metadata)
    may_outlive = message is None or _may_outlive(message, known)
    timeout_seconds, cancel_after_seconds = (_TIMEOUT_SECONDS, None) if may_outlive else _patience(chance)
    is_left = method.streams and not may_outlive and chance.random() < _LEFT_SHARE
    num_reads = chance.randrange(3) if is_left else None
    what = (number, method.path, method, kind, payload, message, metadata)
    return Attempt(*what, timeout_seconds, cancel_after_seconds, num_reads)


def _may_outlive(message: Message, known: Known) -> bool:
    """Whether a call may make a session which outlives this run. It is waited for: an answer that crosses with a cancel
    on the way leaves a session that only its TTL ends.
    """
    if isinstance(message, runtime_pb2.TurnRequest):  # a fork of it lives as long as its source
        return message.create.HasField("ttl_seconds") or message.session.session_id in known.long_lived
    return "ttl_seconds" in message.DESCRIPTOR.fields_by_name


def _patience(chance: random.Random) -> tuple[float, float | None]:
    """Deadline, and when the call is cancelled."""
    if chance.random() < _HASTY_SHARE:
        return chance.choice((0.0001, 0.001, 0.01, 0.1)), None
    if chance.random() < _CANCELLED_SHARE:
        return _TIMEOUT_SECONDS, chance.choice((0.0, 0.0005, 0.002, 0.01, 0.05))
    return _TIMEOUT_SECONDS, None


def _wrong_path(method: Method, chance: random.Random) -> str:
    names = ("/Nope", "/", "", f"/{method.name}/", f"/{method.name.lower()}", f"/{method.name}%00", f"/{'N' * 4_000}")
    others = (f"//{method.service}/{method.name}", f"/kakeya.v2.RuntimeService/{method.name}")
    return chance.choice((*(f"/{method.service}{name}" for name in names), *others, "/kakeya.", "/", "/../.."))
