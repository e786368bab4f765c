"""What a call says of itself beside the request: credentials, right and wrong, and garbage."""

import random
from dataclasses import dataclass

from tests.fuzz.methods import ADMIN, HEALTH, REGISTRY, RUNTIME, VERIFIER
from tests.integration.processes import bearer

Metadata = tuple[tuple[str, str | bytes], ...]
MAX_METADATA_BYTES = 16384


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


_KINDS = {"plain": 86, "no key": 3, "wrong key": 5, "garbage": 5, "binary": 0.5, "oversize": 0.5}
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


def call_metadata(service: str, credentials: Credentials, chance: random.Random) -> CallMetadata:
    kind = chance.choices(list(_KINDS), list(_KINDS.values()))[0]
    right = bearer(credentials.right(service)) if credentials.right(service) else ()
    match kind:
        case "no key":
            return CallMetadata(kind, (), admits=not credentials.needed(service))
        case "wrong key":
            return CallMetadata(kind, _wrong(service, credentials, chance), admits=not credentials.needed(service))
        case "garbage":
            return CallMetadata(kind, (*right, *chance.sample(_GARBAGE, 3)), admits=True)
        case "binary":
            return CallMetadata(kind, (*right, ("x-fuzz-bin", chance.randbytes(5_000))), admits=True)
        case "oversize":
            size = chance.choice((MAX_METADATA_BYTES + 1, 8 * MAX_METADATA_BYTES))
            return CallMetadata(kind, (*right, ("x-fuzz", "a" * size)), admits=True)
    return CallMetadata(kind, right, admits=True)


def _wrong(service: str, credentials: Credentials, chance: random.Random) -> Metadata:
    right = credentials.right(service) or "kakeya_key_000000000000_" + "A" * 43
    other = {RUNTIME: credentials.join, ADMIN: credentials.sessions, REGISTRY: credentials.admin}.get(service, "")
    prefix, name, identity, secret = right.split("_", 3)
    texts = (
        f"Bearer {other}",
        f"Bearer {right[:-1]}",
        f"Bearer {right}A",
        f"Bearer {right.swapcase()}",
        f"Bearer {prefix}_{name}_{chance.getrandbits(48):012x}_{secret}",
        f"Bearer {prefix}_{name}_{identity}_{'A' * 43}",
        f"Bearer {prefix}_{name}_{identity}_",
        f"Bearer {'_' * 50}",
        f"Bearer {'k' * 3_000}",
        f"Basic {right}",
        f"Bearer  {right} {right}",
        right,
        "Bearer",
        "Bearer ",
        "",
    )
    text = chance.choice(texts)
    return (("authorization", text), ("authorization", text)) if chance.random() < 0.1 else (("authorization", text),)
