"""The verifier seam: what the engine asks of a backend.

A backend is found by the entry point group `kakeya.verifier`; the entry point names a class with the
constructor and methods of `Verifier`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.sampling.gumbel import Draw, draw
from kakeya_worker.engine.seams.geometry import Integers, LaneGeometry
from kakeya_worker.engine.seams.raw_numbers import RawNumbers, kv_of_type, of_type
from kakeya_worker.engine.seams.row import Row


@dataclass(frozen=True)
class ModelFacts:
    """What the engine and the contract need to know of a model.

    Attributes:
        backend: the plugin's name.
        weights: their mode: float32, bfloat16 (activations are of the same type) or int8.
        kv_dtype: of K and V: float32, bfloat16 or int8.
        exact: whether logits are the same to the bit in every batch, chunking and process of one fingerprint.
        fingerprint: a digest of all that the bits depend on; see `kakeya_worker.engine.seams.fingerprint`.
        vocab_size: token ids are below it.
        max_positions: S + W may not exceed them: the model's max_position_embeddings, or the smallest window that
            its own layers attend over.
        max_positions_reason: which of the two, for the user.
        kv_bytes_per_token: K and V of one token over all layers, from the arrays' own dtype.
        tokenizer_digest: see `kakeya_shared.contract.tokenizer_digest`; "" where the checkpoint brings no tokenizer.
        model_digest: of config and weights, whatever the mode; "" where nobody knows, and lanes of no other fingerprint
            are taken.
        tokenizer: path of the checkpoint's tokenizer.json, for grammars; None: it brings none.
    """

    backend: str
    weights: str
    kv_dtype: str
    exact: bool
    fingerprint: str
    vocab_size: int
    max_positions: int
    max_positions_reason: str
    kv_bytes_per_token: int
    tokenizer_digest: str = ""
    model_digest: str = ""
    tokenizer: Path | None = None


Memory = NDArray[np.uint8]
"""Bytes that are there: [bytes]."""


@dataclass(frozen=True)
class LaneContents:
    """What some slots of a lane hold, in all layers or in some: copies, as raw numbers, bfloat16 as the 16 bits that it
    has.

    Attributes:
        keys: after norm and RoPE, rotated at their own index; [layers, kv_heads, slots, head_dim] uint16 or uint32,
            or of int8 uint8 with the scales behind, head_dim + 2.
        values: as keys, without norm and RoPE.
        final_hidden: after the last norm, of the lane's last token; [hidden] uint16 or uint32.
        first_layer: of those that are in it.
    """

    keys: RawNumbers
    values: RawNumbers
    final_hidden: RawNumbers
    first_layer: int = 0

    def of_types(self, other: Self) -> Self:
        """The same numbers in the types of another's: bfloat16 and int8 become float32 as they are, float32 is
        rounded.
        """
        return replace(
            self,
            keys=kv_of_type(self.keys, other.keys.dtype, are_keys=True),
            values=kv_of_type(self.values, other.values.dtype, are_keys=False),
            final_hidden=of_type(self.final_hidden, other.final_hidden.dtype),
        )


class ModelRefused(Exception):
    """The model cannot run here; the message says why and what can."""


def draw_of(verifier: "Verifier") -> Draw:
    """How tokens are drawn from the backend's logits."""
    own: Draw = getattr(verifier, "draw", draw)
    return own


class Verifier(Protocol):
    """A model's forward pass over a slab. Used by one thread at a time.

    Construction loads a model from a local directory or a hub id.

    Args:
        model: local directory or hub id.
        weights: their mode, or "auto" for the backend's choice.
        kv_dtype: of K and V, or "auto".
        num_threads: for the arithmetic.
        cache_directory: where converted weights may be kept between runs; None for nowhere.

    Raises:
        ModelRefused: the model cannot run as asked.

    A backend may have a static method `chosen_weights(weights, kv_dtype, checkpoint_dtype) -> str`, which says what
    "auto" stands for here without loading anything, and raises ModelRefused. The checkpoint's dtype is float32 or
    bfloat16, "gguf" where its matrices are GGUF's blocks, or "". `kakeya models list` asks it.

    A backend may have a `draw`, as `sampling.gumbel.Draw` is: the bits of `gumbel.draw`, sooner.
    """

    facts: ModelFacts

    def __init__(
        self, model: str, *, weights: str, kv_dtype: str, num_threads: int, cache_directory: Path | None
    ) -> None: ...

    def allocate(self, geometry: LaneGeometry, num_lanes: int) -> None:
        """Allocates the slab: all KV there will ever be."""
        ...

    def forward(self, rows: Sequence[Row]) -> None:
        """Writes the rows' K and V into their lanes, attends under the law, and keeps the final hidden vector
        of each row's last token with its lane. A lane has at most one row.

        Of rows that are scored it keeps those of all their tokens, until the next step.
        """
        ...

    def logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """The logits after the last token of each lane, from its final hidden vector; [lanes, vocab]."""
        ...

    def scored_logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """The logits after each token of the lanes' rows in the latest step, which were scored, one row after the
        other; [tokens of all, vocab].

        They are those that `logits` would give, had the row ended there: in exact mode to the bit.
        """
        ...

    def shorten(self, lane: int, num_tokens: int) -> None:
        """The lane ends with the first tokens, at least one, of its row in the latest step, which was scored: keeps the
        final hidden vector of the last of them. K and V of the others are left where nobody sees them.
        """
        ...

    def populate_lane(self, lane: int) -> None:
        """Has the memory of a lane made where it is not there yet, without a change to what is in it.

        Any thread may ask at any time. What cannot be made now is made when it is written to.
        """
        ...

    def copy_lane(self, source: int, target: int, num_slots: int) -> None:
        """Makes a lane equal to another: the K and V of its first `num_slots` slots, and the final hidden vector.

        What the target held before is gone. Slots of the source beyond those were never written.
        """
        ...

    def read_lane(self, lane: int, slots: Integers, memory: Memory | None = None) -> LaneContents:
        """Copies what the slots hold, in their order, and the final hidden vector.

        Any thread may ask, as long as nothing writes to the lane meanwhile; steps of other lanes may go on.

        Args:
            memory: may be used for K and V, if it is large enough.
        """
        ...

    def write_lane(self, lane: int, slots: Integers, contents: LaneContents) -> None:
        """Puts contents that were read, here or by another worker of the model, into the slots in their order; other
        layers than those in it stay as they are.

        Any thread may ask, as long as nobody else uses the lane meanwhile; steps of other lanes may go on.

        Raises:
            ValueError: their shape or type is not this slab's; nothing is written.
        """
        ...

    def poison(self) -> None:
        """Fills the slab with NaN. For the conformance suite: a read of a stale slot shows then."""
        ...
