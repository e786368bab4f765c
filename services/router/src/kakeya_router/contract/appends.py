"""AppendTokens: what is asked for, checked once and frozen, and what the worker has answered."""

import hashlib
from dataclasses import dataclass
from typing import Self

from kakeya_router.contract import lanes
from kakeya_router.contract.token_detail import relayed
from kakeya_router.contract.validation import RequestLimits, append_features, invalid
from kakeya_router.store.session_record import LaneState, SessionId
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.store.sessions.session_store import pack
from kakeya_shared.contract.generation_limits import MAX_APPEND_LOGPROBS, MAX_LOGPROBS
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Tokens that are to be added to a history; `intent` tells a repeated append from another one.

    Attributes:
        logprobs: of how many of the likeliest ids, beside each token's own; None: none are asked for.
    """

    session_id: SessionId
    token_ids: tuple[int, ...]
    expected_history_length: int | None
    intent: Intent
    logprobs: int | None = None

    @classmethod
    def of(cls, message: api.AppendTokensRequest, limits: RequestLimits) -> Self:
        """Raises AppendTooLong or InvalidField."""
        logprobs, features = _logprobs(message), append_features(message)
        limits.check_append(len(message.token_ids))
        token_ids = tuple(message.token_ids)
        expected = message.expected_history_length if message.HasField("expected_history_length") else None
        digest = hashlib.sha256(pack(token_ids)).hexdigest()
        parameters = {"num_tokens": len(token_ids), "logprobs": logprobs}
        intent = Intent("append", parameters, len(token_ids), digest, features=features)
        return cls(SessionId(message.session_id), token_ids, expected, intent, logprobs)


def _logprobs(message: api.AppendTokensRequest) -> int | None:
    if not message.HasField("logprobs"):
        return None
    if message.logprobs > MAX_LOGPROBS:
        raise invalid("logprobs", f"must be at most {MAX_LOGPROBS}")
    num_in_all = len(message.token_ids) * (1 + message.logprobs)
    if num_in_all > MAX_APPEND_LOGPROBS:
        raise invalid(
            "logprobs",
            f"{num_in_all} of {len(message.token_ids)} tokens and their likeliest ids; at most {MAX_APPEND_LOGPROBS}: "
            "ask for fewer, or append in parts",
        )
    return message.logprobs


@dataclass(frozen=True, slots=True)
class Appended:
    """Tokens that are prefilled; `logprobs` of each but a history's first, where they were asked for and computed."""

    lane: LaneState
    prefill_duration_seconds: float = 0.0
    evicted_token_count: int = 0
    logprobs: tuple[api.TokenDetail, ...] = ()

    @classmethod
    def of(cls, message: worker_api.AppendResponse) -> Self:
        """As the worker says."""
        return cls(
            lanes.from_worker(message.lane),
            message.prefill_duration_seconds,
            message.evicted_token_count,
            relayed(message.logprobs) if message.logprobs else (),
        )

    def message(self) -> api.AppendTokensResponse:
        """For the client."""
        return api.AppendTokensResponse(
            history_length=self.lane.history_length,
            kv_live_bytes=self.lane.kv_live_bytes,
            prefill_duration_seconds=self.prefill_duration_seconds,
            evicted_token_count=self.evicted_token_count,
            retained=lanes.retained(self.lane.retained),
            logprobs=self.logprobs,
        )
