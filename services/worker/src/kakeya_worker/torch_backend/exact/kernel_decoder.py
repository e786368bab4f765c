"""The forward pass of exact mode in the C++ kernel: the same bits as `Decoder` with `ExactNumerics`."""

import ctypes
import math
import weakref
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kakeya_worker.engine.seams.geometry import Integers
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.model_config import ModelConfig
from kakeya_worker.models.output_head import EMBEDDING, HEAD
from kakeya_worker.torch_backend.exact.attention import key_blocks
from kakeya_worker.torch_backend.exact.attention.key_blocks import KeyBlocks
from kakeya_worker.torch_backend.exact.kernel import interface
from kakeya_worker.torch_backend.exact.kernel.library import Kernel
from kakeya_worker.torch_backend.exact.matrices import Packed, stretch_of
from kakeya_worker.torch_backend.exact.numerics import ExactNumerics
from kakeya_worker.torch_backend.layer_tensors import FINAL_NORM, LayerTensors, layer_tensors
from kakeya_worker.torch_backend.loading import reported
from kakeya_worker.torch_backend.numerics import LinearSpec
from kakeya_worker.torch_backend.slab import Slab


class KernelDecoder:
    """The whole model, in packed matrices that may be views of a mapped file.

    Raises:
        ModelRefused: a tensor is missing or of the wrong shape, or the system gives no more threads.
    """

    def __init__(self, config: ModelConfig, numerics: ExactNumerics, kernel: Kernel, num_threads: int) -> None:
        self._kernel = kernel
        self._config = config
        self._held: list[object] = []  # what the kernel points to
        self._scored: dict[int, NDArray[np.float32]] = {}
        model = self._model(numerics)
        self._decoder = kernel.library.kakeya_decoder_new(ctypes.byref(model), kernel.variant, num_threads)
        if not self._decoder:
            raise ModelRefused(f"the system gives no memory or no {num_threads} threads")
        freed = weakref.finalize(self, kernel.library.kakeya_decoder_free, self._decoder)
        freed.atexit = False  # a thread that dies with the process may still be computing

    def bind(self, slab: Slab) -> None:
        """The slab that all later steps run over."""
        self._slab = slab
        keys, values = (_pointers(tensors) for tensors in (slab.keys, slab.values))
        bound = interface.Slab(keys, values, slab.final_hidden.data_ptr(), slab.geometry.num_slots, slab.lane_bytes)
        self._kernel.library.kakeya_decoder_bind(self._decoder, ctypes.byref(bound))

    def forward(self, rows: Sequence[Row]) -> None:
        """Runs a step; each row's last final hidden vector goes to its lane, those of scored rows are kept."""
        config = self._config
        self._scored = {}
        step = KernelStep(rows, config.vocab_size, self._slab.geometry.num_slots, config.hidden_size)
        if not self._kernel.library.kakeya_decoder_forward(self._decoder, ctypes.byref(step.struct)):
            raise MemoryError("there is no memory for the step")
        self._scored = step.scored_hidden

    def logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """[lanes, vocab]."""
        return self._logits(None, np.array(lanes, dtype=np.int64))

    def shorten(self, lane: int, num_tokens: int) -> None:
        """The lane ends with the first tokens of its scored row."""
        self._slab.final_hidden[lane] = torch.from_numpy(self._scored[lane][num_tokens - 1])

    def scored_logits(self, lanes: Sequence[int]) -> NDArray[np.float32]:
        """[tokens of all, vocab]."""
        hidden = np.concatenate([self._scored[lane] for lane in lanes])
        return self._logits(hidden.ctypes.data, np.arange(len(hidden)))

    def _logits(self, hidden: int | None, indices: Integers) -> NDArray[np.float32]:
        """Of some final hidden vectors, None for those of the lanes; [indices, vocab]."""
        logits = np.empty((len(indices), self._config.vocab_size), dtype=np.float32)
        arguments = (self._decoder, hidden, indices.ctypes.data, len(indices), logits.ctypes.data)
        if not self._kernel.library.kakeya_decoder_logits(*arguments):
            raise MemoryError("there is no memory for the logits")
        return logits

    def _model(self, numerics: ExactNumerics) -> interface.Model:
        config = self._config
        embedding = self._matrix(numerics.packed_table(EMBEDDING, config.vocab_size, config.hidden_size))
        head = self._linear([embedding])
        layers = (interface.Layer * config.num_layers)(
            *(self._layer(numerics, number, layer_tensors(config, number)) for number in reported(config.num_layers))
        )
        if not config.tied_head:
            table = numerics.packed_table(HEAD, config.vocab_size, config.hidden_size)
            head = self._linear([self._matrix(table)])
        frequencies = torch.from_numpy(config.rope_scaling.frequencies(config.rope_theta, config.head_dim))
        return interface.Model(
            embedding=embedding,
            head=head,
            final_norm=self._norm(numerics, FINAL_NORM, config.hidden_size),
            layers=layers,
            frequencies=self._pointer(frequencies),
            num_layers=config.num_layers,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            vocab_size=config.vocab_size,
            heads=interface.head_shape(
                config.num_heads,
                config.num_kv_heads,
                config.head_dim,
                config.rms_norm_eps,
                1 / math.sqrt(config.head_dim),
                numerics.kv_type,
            ),
        )

    def _layer(self, numerics: ExactNumerics, number: int, names: LayerTensors) -> interface.Layer:
        def linear(spec: LinearSpec) -> interface.Linear:
            matrices, bias = numerics.packed(spec), numerics.bias(spec)
            sizes = [matrix.out_features for matrix in matrices]
            biases = [None] * len(sizes) if bias is None else bias.split(sizes)
            return self._linear([self._matrix(*part) for part in zip(matrices, biases, strict=True)])

        return interface.Layer(
            qkv=linear(names.qkv),
            out=linear(names.out),
            gate_up=linear(names.gate_up),
            down=linear(names.down),
            attention_norm=self._norm(numerics, names.attention_norm, self._config.hidden_size),
            mlp_norm=self._norm(numerics, names.mlp_norm, self._config.hidden_size),
            q_norm=self._norm(numerics, names.q_norm, self._config.head_dim),
            k_norm=self._norm(numerics, names.k_norm, self._config.head_dim),
            rotates=number not in self._config.layers_without_rope,
        )

    def _matrix(self, packed: Packed, bias: Tensor | None = None) -> interface.Matrix:
        stretch = stretch_of(packed)
        self._held += [packed, stretch, bias]
        return interface.matrix(packed, stretch, bias)

    def _linear(self, parts: Sequence[interface.Matrix]) -> interface.Linear:
        linear = interface.linear(parts)
        self._held.append(linear)
        return linear

    def _norm(self, numerics: ExactNumerics, name: str | None, size: int) -> int | None:
        return None if name is None else self._pointer(numerics.norm_weight(name, size))

    def _pointer(self, tensor: Tensor) -> int | None:
        self._held.append(tensor)
        return interface.pointer(tensor)


class KernelStep:
    """A step's rows as the kernel reads them; holds what the struct points to.

    Attributes:
        scored_hidden: of the rows that are scored, by lane: where the final hidden vectors of all their tokens come,
            each [tokens, hidden].

    Raises:
        IndexError: a token is outside the vocabulary or a slot outside the lane, where the kernel would not look.
    """

    def __init__(self, rows: Sequence[Row], vocab_size: int, num_slots: int, hidden_size: int) -> None:
        blocks = [key_blocks.of(row) for row in rows]
        self._arrays = {
            "token_ids": np.array([token for row in rows for token in row.token_ids], dtype=np.int64),
            "slots": _joined([row.slots for row in rows]),
            "key_positions": key_positions(rows),
            "recent_positions": _joined([row.positions for row in rows]),
            "sink_positions": _joined([row.sink_positions for row in rows]),
        }  # each [tokens]
        _check_within(self._arrays["token_ids"], vocab_size, "token")
        for slots in (self._arrays["slots"], *(each.slots for each in blocks)):
            _check_within(slots, num_slots, "slot")
        self._slots = [each.slots.astype(np.int32) for each in blocks]
        self._visible = [each.visible_bits for each in blocks]
        self._rows = (interface.StepRow * len(rows))(*self._each(rows, blocks))
        self.scored_hidden: dict[int, NDArray[np.float32]] = {}
        num_kept, kept_hidden = sum(row.num_kept for row in rows), None
        if any(row.is_scored for row in rows):
            hidden = np.empty((num_kept, hidden_size), dtype=np.float32)
            kept_hidden = hidden.ctypes.data
            kept = zip(rows, np.split(hidden, np.cumsum([row.num_kept for row in rows])[:-1]), strict=True)
            self.scored_hidden = {row.lane: vectors for row, vectors in kept if row.is_scored}
        self.struct = interface.Step(
            num_tokens=len(self._arrays["token_ids"]),
            num_rows=len(rows),
            num_kept=num_kept,
            rows=self._rows,
            kept_hidden=kept_hidden,
            **{name: array.ctypes.data for name, array in self._arrays.items()},
        )

    def _each(self, rows: Sequence[Row], blocks: Sequence[KeyBlocks]) -> Iterator[interface.StepRow]:
        first = first_kept = 0
        for row, block, slots, visible in zip(rows, blocks, self._slots, self._visible, strict=True):
            yield interface.StepRow(
                lane=row.lane,
                first_token=first,
                num_tokens=len(row.token_ids),
                num_blocks=block.num_blocks,
                num_sink_blocks=block.num_sinks // key_blocks.BLOCK,
                first_kept=first_kept,
                num_kept=row.num_kept,
                slots=slots.ctypes.data,
                visible=visible.ctypes.data,
            )
            first += len(row.token_ids)
            first_kept += row.num_kept


def key_positions(rows: Sequence[Row]) -> Integers:
    """By which the keys are rotated; [tokens]."""
    return _joined([row.positions for row in rows])


def _joined(arrays: Sequence[Integers]) -> Integers:
    """As the kernel reads them, whatever kind of integers a retention policy makes."""
    return np.concatenate(arrays, dtype=np.int64, casting="safe")


def _check_within(indices: Integers, num: int, what: str) -> None:
    if len(indices) and indices.view(np.uint64).max() >= num:  # as which one below 0 is far above
        raise IndexError(f"a {what} is not within 0..{num - 1}")


def _pointers(tensors: Sequence[Tensor]) -> "ctypes.Array[ctypes.c_void_p]":
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
