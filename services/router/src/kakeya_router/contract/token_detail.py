"""How likely a token was, from the worker on to the client."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api


@dataclass(frozen=True, slots=True)
class TokenDetail:
    """Of a token that was sampled or appended: its log-probability, and the likeliest ids with theirs."""

    logprob: float
    top_logprobs: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, message: worker_api.TokenDetail) -> Self:
        """As the worker says."""
        return cls(message.logprob, tuple((top.token_id, top.logprob) for top in message.top_logprobs))

    def message(self) -> api.TokenDetail:
        """For the client."""
        top_logprobs = [api.TokenLogprob(token_id=token_id, logprob=logprob) for token_id, logprob in self.top_logprobs]
        return api.TokenDetail(logprob=self.logprob, top_logprobs=top_logprobs)


def relayed(details: Iterable[worker_api.TokenDetail]) -> tuple[api.TokenDetail, ...]:
    """Those of an append, of which there may be many: both contracts have the same fields under the same numbers."""
    return tuple(api.TokenDetail.FromString(detail.SerializeToString()) for detail in details)
