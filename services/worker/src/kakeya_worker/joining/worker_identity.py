"""Who a worker is, and what it says of itself when it joins."""

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_shared.contract.features import (
    ANSWER_STREAM,
    APPEND_LOGPROBS,
    GRAMMAR,
    MASKED_ENDS,
    REASONING,
    REPETITION_PENALTY,
)
from kakeya_stubs.worker.v1 import registry_pb2 as pb
from kakeya_worker.engine.engine import Engine

FEATURES: tuple[str, ...] = (APPEND_LOGPROBS, GRAMMAR, MASKED_ENDS, REASONING, REPETITION_PENALTY, ANSWER_STREAM)
"""That this worker serves."""


@dataclass(frozen=True)
class WorkerIdentity:
    """How a worker presents itself; `snapshot_store` is its store's identity, and then what was free there.

    Attributes:
        address: where routers dial it; empty: nobody can, and it keeps tunnels.
        grammar_library: see `kakeya_worker.grammars.grammars.Grammars.library`.
    """

    worker_id: str
    pool: str
    model: str
    address: str
    num_threads: int
    snapshot_store: str = ""
    snapshot_free_bytes: int = 0
    grammar_library: str = ""

    def features(self, served: Sequence[str]) -> list[str]:
        """All that it names."""
        return [*served, *([self.grammar_library] if self.grammar_library else [])]

    def join_request(
        self, engine: Engine, incarnation: str, contract_version: int, features: Sequence[str]
    ) -> pb.JoinRequest:
        """With what the engine holds."""
        facts, totals, geometry = engine.facts, engine.lanes.totals(), engine.lanes.geometry
        return pb.JoinRequest(
            contract_version=contract_version,
            features=features,
            worker_id=self.worker_id,
            incarnation=incarnation,
            pool=self.pool,
            model=self.model,
            address=self.address,
            tunnel=not self.address,
            backend=facts.backend,
            dtype=facts.kv_dtype,
            weights=facts.weights,
            fingerprint=facts.fingerprint,
            exact=facts.exact,
            slab_bytes=totals.slab_bytes,
            lane_bytes=totals.lane_bytes,
            num_lanes=totals.num_lanes,
            sink=geometry.sink,
            window=geometry.window,
            kv_bytes_per_token=totals.kv_bytes_per_token,
            vocab_size=facts.vocab_size,
            num_threads=self.num_threads,
            tokenizer_digest=facts.tokenizer_digest,
            model_digest=facts.model_digest,
            snapshot_store=self.snapshot_store,
            snapshot_free_bytes=self.snapshot_free_bytes,
            prefill_tokens_per_second=engine.prefill_tokens_per_second,
        )
