"""What the runtime says of models."""

from dataclasses import dataclass
from typing import Self

from kakeya_stubs.v1 import runtime_pb2


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that the runtime serves.

    Attributes:
        name: as `create_session(model=...)` takes it.
        num_lane_tokens: what its largest lane keeps: sinks and window of a session fit into this.
        vocab_size: token ids are below it.
        is_default: it serves sessions that name no model.
        tokenizer_digest: SHA-256 in hex of its tokenizer.json in canonical form, see `Model` in
            kakeya/v1/runtime.proto; "" where its workers bring none or disagree, and from an older router.
        sink, window: of that lane as its worker was started: what a session has that names none; 0 from an older
            router.
        kv_bytes_per_token: bytes of KV that a token takes there, so what a larger window would cost; 0 as above.
        features: what the router knows of the contract; none of an older router.
    """

    name: str
    num_lane_tokens: int
    vocab_size: int
    is_default: bool
    tokenizer_digest: str
    sink: int = 0
    window: int = 0
    kv_bytes_per_token: int = 0
    features: frozenset[str] = frozenset()

    @classmethod
    def from_wire(cls, model: runtime_pb2.Model) -> Self:
        return cls(
            name=model.name,
            num_lane_tokens=model.lane_token_count,
            vocab_size=model.vocab_size,
            is_default=model.is_default,
            tokenizer_digest=model.tokenizer_digest,
            sink=model.sink,
            window=model.window,
            kv_bytes_per_token=model.kv_bytes_per_token,
            features=frozenset(model.features),
        )
