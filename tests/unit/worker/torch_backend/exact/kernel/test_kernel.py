"""The C++ kernel against the eager form, byte for byte: each operation, each variant, one thread and more."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.sampling.elementary import log
from kakeya_worker.engine.sampling.gumbel import Survivors, draw
from kakeya_worker.engine.sampling.philox import uniforms
from kakeya_worker.engine.seams.geometry import Integers, LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, SinkWindow, sink_window
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.gguf.block_integers import BLOCK_TYPES
from kakeya_worker.torch_backend import TorchVerifier, mode
from kakeya_worker.torch_backend.exact import integer_product, quantization
from kakeya_worker.torch_backend.exact.arithmetic import exp
from kakeya_worker.torch_backend.exact.attention import key_blocks
from kakeya_worker.torch_backend.exact.attention.exact_kv import exact_kv
from kakeya_worker.torch_backend.exact.attention.int8_kv import as_queries, spread
from kakeya_worker.torch_backend.exact.attention.key_blocks import BLOCK, KeyBlocks
from kakeya_worker.torch_backend.exact.attention.row_view import as_view, view
from kakeya_worker.torch_backend.exact.gguf_blocks.packing import PackedBlocks
from kakeya_worker.torch_backend.exact.kernel import interface, probe
from kakeya_worker.torch_backend.exact.kernel.kernel_draw import KernelDraw
from kakeya_worker.torch_backend.exact.kernel.library import CHOICE_VARIABLE, Kernel, load, variants
from kakeya_worker.torch_backend.exact.kernel.operations import Operations
from kakeya_worker.torch_backend.exact.kernel_decoder import KernelDecoder, KernelStep
from kakeya_worker.torch_backend.exact.linear import Int8Linear
from kakeya_worker.torch_backend.exact.numerics import rms_norm, swiglu
from kakeya_worker.torch_backend.exact.packing import PackedMatrix, pack
from kakeya_worker.torch_backend.exact.quantization import quantize_matrix, quantize_table
from kakeya_worker.torch_backend.numerics import INT8, KV_TYPES, KvType, RowQueries
from kakeya_worker.torch_backend.rope import Rope, Rotation
from kakeya_worker.torch_backend.slab import Slab

pytestmark = pytest.mark.skipif(not variants(), reason="no kernel library: this machine has no C++ compiler")


@pytest.fixture(params=variants())
def operations(request: pytest.FixtureRequest) -> Operations:
    library = load()
    assert library is not None
    return Operations(Kernel(library, request.param))


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def same(kernel: Tensor, eager: Tensor) -> bool:
    """As bytes, but for the sign of zeros, on which nothing depends."""
    return torch.equal(*((tensor + 0.0).view(torch.int32) for tensor in (kernel, eager)))


@pytest.mark.parametrize("size", [1, 8, 15, 16, 17, 72, 80, 960, 1024, 2560])
def test_norms(operations: Operations, random: torch.Generator, size: int) -> None:
    x, weight = torch.randn(4, size, generator=random) * 5, torch.randn(size, generator=random)
    assert same(operations.norm(x, weight, 1e-6), rms_norm(x, weight, 1e-6))


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 4, 5, 6, 7, 32])
@pytest.mark.parametrize(("out_features", "in_features"), [(64, 64), (1, 1), (65, 130), (130, 37), (48, 1027)])
def test_linear_layers(
    operations: Operations, random: torch.Generator, out_features: int, in_features: int, num_tokens: int
) -> None:
    matrix = quantize_matrix([torch.randn(out_features, in_features, generator=random)])
    x, bias = torch.randn(num_tokens, in_features, generator=random), torch.randn(out_features, generator=random)
    onto = torch.randn(num_tokens, out_features, generator=random)
    x[num_tokens // 2] = 0  # a token of nothing has no scale
    plain, biased = (Int8Linear(matrix, b, integer_product.by_floats)(x) for b in (None, bias))
    packed = pack(matrix)
    assert same(operations.linear(packed, x), plain)
    assert same(operations.linear(packed, x, bias), biased)
    assert same(operations.linear(packed, x, bias, onto), onto + biased)


@pytest.mark.parametrize("activation", [127 * 256 + 127, 127 * 256 - 128, -127 * 256 + 127, -127 * 256 - 127])
@pytest.mark.parametrize("depth", [64, 600])
def test_sums_as_large_as_they_get(operations: Operations, depth: int, activation: int) -> None:
    """Weights are 128 too large on the way, so that sums wrap around 32 bits and back."""
    matrix = quantize_table(torch.stack([torch.full((depth,), 127.0), torch.full((depth,), -127.0)]))
    x = torch.full((5, depth), float(activation))
    x[:, 0] = quantization.ACTIVATION_LIMIT  # so that its scale is 1
    expected = torch.zeros(2)
    for group in x[0].long().split(64):
        expected = expected + (torch.tensor([127, -127]) * int(group.sum())).float()  # each scale is 1
    assert same(operations.linear(pack(matrix), x), expected.expand(5, 2))
    assert same(operations.linear(pack(matrix), x), Int8Linear(matrix, None, integer_product.by_floats)(x))


@pytest.mark.parametrize("place", [0, 21, 36])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_not_lost(operations: Operations, place: int, value: float) -> None:
    """Sampling then refuses the logits, as it does those of the eager form."""
    matrix = pack(quantize_matrix([torch.ones(70, 37)]))
    x = torch.ones(3, 37)
    x[1, place] = value
    y = operations.linear(matrix, x)
    assert not y[1].isfinite().any()
    assert y[[0, 2]].isfinite().all()


@pytest.mark.parametrize("in_features", [2, 36, 130])
def test_embeddings(operations: Operations, random: torch.Generator, in_features: int) -> None:
    matrix = quantize_matrix([torch.randn(150, in_features, generator=random)])
    rows = torch.tensor([0, 63, 64, 149])
    expected = Int8Linear(matrix, None, integer_product.by_floats).rows(rows)
    assert same(operations.embed(pack(matrix), rows), expected)


@pytest.mark.parametrize("size", [1, 16, 50, 3072])
def test_swiglu(operations: Operations, random: torch.Generator, size: int) -> None:
    gate_up = torch.randn(3, 2 * size, generator=random) * 30
    gate_up[0, :size] = 0.0
    gate_up[1, 0] = -200.0
    assert same(operations.swiglu(gate_up), swiglu(*gate_up.chunk(2, dim=-1)))


def test_exp(operations: Operations) -> None:
    x = torch.cat([-torch.linspace(0, 88, 100_003), torch.tensor([-86.0, -86.00001, -1e30, -torch.inf])])
    assert same(operations.exp(x), exp(x))


@pytest.mark.parametrize("num", [1, 2, 7, 255, 256, 257, 3000])
def test_draws(operations: Operations, num: int) -> None:
    random = np.random.default_rng(num)
    own_draw = KernelDraw(operations.kernel)
    for number in range(60):
        scores = random.normal(0.0, 2.0, 2 * num)
        token_ids = np.flatnonzero(random.permutation(2 * num) < num) if number % 2 else None
        seed, index = int(random.integers(2**63)) * 2 + 1, int(random.integers(2**40))
        assert own_draw(Survivors(scores, token_ids), seed, index) == draw(Survivors(scores, token_ids), seed, index)


def test_draws_that_the_last_bit_decides(operations: Operations) -> None:
    """Of two ids whose sums are equal the lower one wins; one of them a bit higher or lower is told from that."""
    own_draw, ids = KernelDraw(operations.kernel), np.arange(2)
    winners = []
    for seed in range(2000):
        first, second = -log(-log(uniforms(seed, 9, ids)))
        for score in np.nextafter(first - second, [-np.inf, first - second, np.inf]):
            survivors = Survivors(np.array([0.0, score]))
            winners.append(own_draw(survivors, seed, 9))
            assert winners[-1] == int(score + second > first)
    assert set(winners) == {0, 1}


@pytest.mark.parametrize("kv_type", KV_TYPES.values(), ids=KV_TYPES)
@pytest.mark.parametrize("head_dim", [2, 40, 128])
@pytest.mark.parametrize("is_normed", [True, False])
@pytest.mark.parametrize("is_rotated", [True, False])
def test_heads(
    operations: Operations,
    random: torch.Generator,
    head_dim: int,
    kv_type: KvType,
    *,
    is_normed: bool,
    is_rotated: bool,
) -> None:
    """Queries and keys normed, rotated by the angles of three positions; all stored as the KV's type has it."""
    qkv = torch.randn(4 + 2 * 2, head_dim, generator=random)
    weights = [torch.randn(head_dim, generator=random) for _ in range(2)] if is_normed else [None, None]
    rotations = [Rope(np.linspace(0.01, 0.2, head_dim // 2)).at(np.array([p])) for p in (9, 8, 5)]
    angles = [torch.cat([r.cos.flatten(), r.sin.flatten()]) for r in rotations] if is_rotated else [None] * 3
    found = operations.heads(qkv, 4, 2, *weights, *angles, eps=1e-6, kv_type=kv_type)

    def prepared(heads: Tensor, weight: Tensor | None, rotation: Rotation) -> Tensor:
        normed = heads if weight is None else rms_norm(heads, weight, 1e-6)
        return rotation(normed[None])[0] if is_rotated else normed

    queries, keys, values = qkv.split([4, 2, 2])
    kv = exact_kv(kv_type)
    for stored, rotation in zip(found[:2], rotations[1:], strict=True):
        _same_queries(stored, prepared(queries, weights[0], rotation), kv_type)
    assert torch.equal(found[2].float(), kv.stored_keys(prepared(keys, weights[1], rotations[0])).float())
    assert torch.equal(found[3].float(), kv.stored_values(values).float())


def _same_queries(stored: Tensor, queries: Tensor, kv_type: KvType) -> None:
    """[heads, padded head_dim] as the kernel keeps them, and [heads, head_dim]."""
    head_dim, padded = queries.shape[1], stored.shape[1]
    if kv_type is not INT8:
        assert same(stored[:, :head_dim], queries)
        return
    numbers, scales = as_queries(spread(queries))
    pairs = stored.view(torch.int16)[:, :padded].reshape(len(stored), -1, 2, 2)
    in_order = pairs.transpose(2, 3).reshape(len(stored), padded)
    assert torch.equal(in_order[:, :head_dim].double(), numbers)
    assert not in_order[:, head_dim:].any()
    assert same(stored[:, padded // 2], scales)


@pytest.mark.parametrize("kv_type", KV_TYPES.values(), ids=KV_TYPES)
@pytest.mark.parametrize("head_dim", [2, 16, 24, 64, 80, 128, 256])
@pytest.mark.parametrize("group", [1, 3, 7])
def test_attention(operations: Operations, random: torch.Generator, head_dim: int, group: int, kv_type: KvType) -> None:
    """Rows within the window, at its border and far beyond, of more and of fewer queries than are attended to at a
    time; slots that were not written are poison and never read.
    """
    geometry = LaneGeometry(sink=5, window=43, chunk=16)
    kv = exact_kv(kv_type)
    for start, num_queries in ((0, 1), (0, 9), (40, 16), (1003, 5)):
        row = Lane(geometry, 0, sink_window(SessionOptions(), geometry), length=start).row((7,) * num_queries)
        held = torch.from_numpy(row.retention.slots(row.keys))
        k, v = (torch.randn(2, len(held), head_dim, generator=random) for _ in range(2))
        v[:, 0], v[:, -1] = 0.0, 1e-38  # a head of nothing has no scale, and one that is nearly nothing has none
        slab = Slab(
            geometry,
            1,
            num_layers=1,
            num_kv_heads=2,
            head_dim=head_dim,
            hidden_size=1,
            kv_type=kv_type,
            hidden_dtype=torch.float32,
        )
        slab.poison()
        keys, values = slab.keys[0][0], slab.values[0][0]
        keys[:, held], values[:, held] = kv.stored_keys(k), kv.stored_values(v)
        queries = RowQueries(*(torch.randn(num_queries, 2 * group, head_dim, generator=random) for _ in range(2)))
        stored = RowQueries(*(operations.queries(each, kv_type) for each in (queries.to_sinks, queries.to_recent)))
        found = operations.attend(stored, keys, values, key_blocks.of(row), head_dim, kv_type)
        assert found.isfinite().all()
        assert same(found, kv.attend(queries, keys, values, view(row)))


@pytest.mark.parametrize("num_queries", [1, 2, 3, 4, 5, 40])
def test_sums_over_int8_as_large_as_they_get(operations: Operations, num_queries: int) -> None:
    """Every key, value and query the largest there is, in heads as wide as there are."""
    head_dim, num_keys = interface.MAX_HEAD_DIM, 3 * BLOCK
    numbers = torch.full((1, num_keys, head_dim), 127, dtype=torch.int8)
    numbers[:, ::3] = -127
    scales = torch.full((1, num_keys, 1), 2.0**-7, dtype=torch.bfloat16)
    slots = torch.cat([numbers.view(torch.uint8), scales.view(torch.uint8)], dim=-1)
    q = torch.zeros(num_queries, 1, head_dim)
    q[:, :, 0] = 3000.0  # spread, all are alike, and each is the largest
    queries = RowQueries(q, q)
    blocks = KeyBlocks(
        np.arange(num_keys), np.ones(num_keys, bool), BLOCK, np.ones((num_queries, num_keys), dtype=bool)
    )
    stored = operations.queries(q, INT8)
    found = operations.attend(RowQueries(stored, stored), slots, slots, blocks, head_dim, INT8)
    assert same(found, exact_kv(INT8).attend(queries, slots, slots, as_view(blocks)))
    assert found[0, 0] == pytest.approx(127 * 2.0**-7)


@pytest.mark.parametrize("what", ["query", "key", "value"])
def test_what_is_not_finite_shows_in_attention_over_int8(operations: Operations, what: str) -> None:
    """Sampling then refuses the logits, as it does those of the eager form."""
    kv, head_dim = exact_kv(INT8), 64
    q, k, v = torch.ones(5, 2, head_dim), torch.ones(1, BLOCK, head_dim), torch.ones(1, BLOCK, head_dim)
    broken = {"query": q[3], "key": k[0, 7], "value": v[0, 7]}[what]
    broken[..., 9] = torch.inf
    blocks = KeyBlocks(np.arange(BLOCK), np.ones(BLOCK, bool), 0, np.ones((5, BLOCK), dtype=bool))
    stored = operations.queries(q, INT8)
    keys, values = kv.stored_keys(k), kv.stored_values(v)
    found = operations.attend(RowQueries(stored, stored), keys, values, blocks, head_dim, INT8)
    eager = kv.attend(RowQueries(q, q), keys, values, as_view(blocks))
    for mixed in (found, eager):
        is_lost = ~mixed.isfinite().any(dim=1)
        assert is_lost.tolist() == [what != "query" or number == 3 for number in range(5)]


@pytest.fixture
def eager_verifier(random_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> TorchVerifier:
    monkeypatch.setenv(CHOICE_VARIABLE, "off")
    return _verifier(random_checkpoint, num_threads=1)


def _verifier(checkpoint: Path, num_threads: int) -> TorchVerifier:
    return TorchVerifier(
        str(checkpoint), weights="int8", kv_dtype="auto", num_threads=num_threads, cache_directory=None
    )


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("variant", variants())
def test_whole_logits(
    eager_verifier: TorchVerifier,
    random_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    variant: str,
    num_threads: int,
) -> None:
    """Of three sessions that share steps: rows of many sizes, at each step the raw bytes of all logits."""
    monkeypatch.setenv(CHOICE_VARIABLE, variant)
    kernel = _verifier(random_checkpoint, num_threads)
    geometry = LaneGeometry(sink=3, window=20, chunk=16)
    lanes = [Lane(geometry, index, sink_window(SessionOptions(), geometry)) for index in range(3)]
    assert isinstance(kernel._decoder, KernelDecoder)
    assert not isinstance(eager_verifier._decoder, KernelDecoder)
    for verifier in (eager_verifier, kernel):
        verifier.allocate(geometry, len(lanes))
        verifier.poison()
    for sizes in ((5, 1, 16), (1, 1, 1), (16, 2, 3), (1, 16, 1)) * 2:
        rows = [
            lane.row(tuple((lane.length * 7 + lane.index + i) % kernel.facts.vocab_size for i in range(size)))
            for lane, size in zip(lanes, sizes, strict=True)
        ]
        logits = []
        for verifier in (eager_verifier, kernel):
            verifier.forward(rows)
            logits.append(verifier.logits([2, 0, 1]).tobytes())
        assert logits[0] == logits[1]
        for lane, row in zip(lanes, rows, strict=True):
            lane.commit(row)


def test_both_forms_have_one_fingerprint(
    eager_verifier: TorchVerifier, random_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHOICE_VARIABLE, "auto")
    assert _verifier(random_checkpoint, num_threads=2).facts == eager_verifier.facts


def test_a_kernel_that_computes_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch, operations: Operations
) -> None:
    whole = Operations.swiglu
    monkeypatch.setattr(Operations, "swiglu", lambda self, gate_up: whole(self, gate_up) * (1 + 2.0**-23))
    monkeypatch.setenv(CHOICE_VARIABLE, operations.kernel.name)
    probe.check_kernel.cache_clear()
    with pytest.raises(ModelRefused, match=r"does not compute the bits of docs/numerics.md in: swiglu; run with"):
        mode.choose_mode("int8", "auto", "float32")


def test_products_with_blocks_are_looked_at_where_they_are_needed(
    monkeypatch: pytest.MonkeyPatch, operations: Operations
) -> None:
    whole = Operations.embed
    monkeypatch.setattr(
        Operations, "embed", lambda self, matrix, rows: whole(self, matrix, rows) + isinstance(matrix, PackedBlocks)
    )
    monkeypatch.setenv(CHOICE_VARIABLE, operations.kernel.name)
    probe.check_kernel.cache_clear()
    assert mode.choose_mode("int8", "auto", "gguf").weights == "int8"
    with pytest.raises(ModelRefused, match=r"does not compute the bits of docs/numerics.md in: embedding in Q4_0, "):
        mode.choose_mode("gguf", "auto", "gguf")


def test_the_probe_looks_at_every_operation(operations: Operations) -> None:
    compared = list(probe.comparisons(operations.kernel, with_blocks=True))
    assert all(comparison.is_equal for comparison in compared)
    expected = {
        "norm",
        "linear",
        "linear with a residual",
        "embedding",
        "swiglu",
        "exp",
        "angles",
        "draw",
        "heads",
        "attention",
        *(f"linear in {name}" for name in BLOCK_TYPES),
        *(f"embedding in {name}" for name in BLOCK_TYPES),
    }
    assert {comparison.operation for comparison in compared} == expected


def test_heads_larger_than_the_kernels_run_eagerly(random_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mode, "MAX_HEAD_DIM", 4)
    assert type(_verifier(random_checkpoint, num_threads=1)._decoder).__name__ == "Decoder"


@pytest.mark.parametrize(
    ("token_id", "slots", "message"),
    [
        (4, [64], "a slot is not within 0..63"),
        (4, [-1], "a slot is not within"),
        (999, [0], "a token is not within 0..9"),
    ],
)
def test_a_policy_cannot_make_the_kernel_write_elsewhere(token_id: int, slots: list[int], message: str) -> None:
    class Elsewhere(SinkWindow):
        def slots(self, indices: Integers) -> Integers:
            return np.full_like(indices, slots[0])

    row = Row(0, 0, (token_id,), Elsewhere(4, 12, 16))
    with pytest.raises(IndexError, match=message):
        KernelStep([row], vocab_size=10, num_slots=64, hidden_size=8)


def test_no_lanes_have_no_logits(random_checkpoint: Path) -> None:
    verifier = _verifier(random_checkpoint, num_threads=2)
    verifier.allocate(LaneGeometry(sink=3, window=20, chunk=16), 1)
    assert verifier.logits([]).shape == (0, verifier.facts.vocab_size)


def test_two_decoders_at_once(random_checkpoint: Path) -> None:
    """Each has threads and memory of its own."""
    geometry = LaneGeometry(sink=3, window=20, chunk=16)

    def converse(verifier: TorchVerifier) -> bytes:
        lane = Lane(geometry, 0, sink_window(SessionOptions(), geometry))
        for number in range(60):
            row = lane.row((number, number + 1))
            verifier.forward([row])
            lane.commit(row)
        return verifier.logits([0]).tobytes()

    verifiers = [_verifier(random_checkpoint, num_threads=2) for _ in range(2)]
    for verifier in verifiers:
        verifier.allocate(geometry, 1)
    with ThreadPoolExecutor(2) as pool:
        assert len(set(pool.map(converse, verifiers))) == 1


_WITHOUT_THREADS = """
import resource, sys
from pathlib import Path
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.gguf.block_integers import BLOCK_TYPES
from kakeya_worker.torch_backend import TorchVerifier
load = lambda num_threads: TorchVerifier(
    sys.argv[1], weights="int8", kv_dtype="auto", num_threads=num_threads, cache_directory=None
)
verifier = load(1)
kernel = type(verifier._decoder)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), -1))  # for the stacks of some twenty threads
try:
    kernel(verifier.config, verifier._numerics, verifier._decoder._kernel, num_threads=1000)
except ModelRefused as error:
    print(error)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="a process's memory is limited by what /proc says")
def test_a_system_without_threads_is_an_error(random_checkpoint: Path) -> None:
    command = [sys.executable, "-c", _WITHOUT_THREADS, str(random_checkpoint)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "the system gives no memory or no 1000 threads"


def test_what_the_kernel_cannot_read_is_refused() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        interface.pointer(torch.zeros(4, 4).T)
    values = torch.zeros(64 * 4 + 1, dtype=torch.uint8)[1:].view(1, 1, 64, 4)
    matrix = PackedMatrix(values, torch.zeros(64), torch.zeros(4, dtype=torch.int8), 64)
    with pytest.raises(ValueError, match="multiple of 64 bytes"):
        interface.matrix(matrix, torch.ones(4), None)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_a_decoder_ends_its_threads(random_checkpoint: Path) -> None:
    def num_threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    first = _verifier(random_checkpoint, num_threads=4)  # torch starts threads of its own, once
    before = num_threads()
    second = _verifier(random_checkpoint, num_threads=4)
    assert num_threads() == before + 3
    del second
    assert num_threads() == before
    del first
    assert num_threads() == before - 3
