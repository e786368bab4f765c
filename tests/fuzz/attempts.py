"""One call of the fuzzer: what is sent, and when the client loses interest."""

import random
from dataclasses import dataclass

from google.protobuf.message import Message

from tests.fuzz.call_metadata import CallMetadata, Credentials, call_metadata
from tests.fuzz.known import Known
from tests.fuzz.methods import METHODS, WEIGHTS, Method
from tests.fuzz.request_bytes import request_bytes

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
    request = request_bytes(method, known, chance)
    metadata = call_metadata(method.service, credentials, chance)
    if chance.random() < _WRONG_PATH_SHARE:
        path = _wrong_path(method, chance)
        return Attempt(number, path, None, "wrong path", request.payload, None, metadata)
    timeout_seconds, cancel_after_seconds = _patience(request.message, chance)
    return Attempt(
        number,
        method.path,
        method,
        request.kind,
        request.payload,
        request.message,
        metadata,
        timeout_seconds,
        cancel_after_seconds,
        chance.randrange(3) if method.streams and chance.random() < _LEFT_SHARE else None,
    )


def _patience(message: Message | None, chance: random.Random) -> tuple[float, float | None]:
    """Deadline, and when the call is cancelled.

    A call that may make a session which outlives this run is waited for: an answer that crosses with a cancel on the
    way leaves a session that only its TTL ends.
    """
    if message is None or "ttl_seconds" in message.DESCRIPTOR.fields_by_name:
        return _TIMEOUT_SECONDS, None
    if chance.random() < _HASTY_SHARE:
        return chance.choice((0.0001, 0.001, 0.01, 0.1)), None
    if chance.random() < _CANCELLED_SHARE:
        return _TIMEOUT_SECONDS, chance.choice((0.0, 0.0005, 0.002, 0.01, 0.05))
    return _TIMEOUT_SECONDS, None


def _wrong_path(method: Method, chance: random.Random) -> str:
    return chance.choice(
        [
            f"/{method.service}/Nope",
            f"/{method.service}/",
            f"/{method.service}",
            f"/{method.service}/{method.name}/",
            f"/{method.service}/{method.name.lower()}",
            f"//{method.service}/{method.name}",
            f"/{method.service}/{method.name}%00",
            f"/{method.service}/{'N' * 4_000}",
            f"/kakeya.v2.RuntimeService/{method.name}",
            "/kakeya.",
            "/",
            "/../..",
        ]
    )
