"""The engine's law on random Qwen3 checkpoints, against a float64 reference and against transformers.

The logits at p are a pure function of tokens 0..p and (S, W): of no chunking, no company, no backend detail.
"""

from pathlib import Path

import numpy as np
import pytest
from transformers import Qwen3ForCausalLM

from kakeya_worker.engine.lane import Lane, LaneGeometry
from kakeya_worker.engine.sampling import Sampling, choose
from tests.checkpoints import greedy_tokens, transformers_logits
from tests.conformance.conftest import NUM_TOKENS, SINK, WINDOW
from tests.conformance.driving import TOLERANCE, append, law_error, poisoned_verifier, relative_error
from tests.conformance.reference import Array, Reference


@pytest.mark.parametrize("append_size", [1, 7, NUM_TOKENS])
def test_logits_equal_the_reference_however_appended(
    checkpoint: Path, history: list[int], reference_logits: Array, append_size: int
) -> None:
    error = law_error(checkpoint, history, reference_logits, append_size=append_size, sink=SINK, window=WINDOW)
    assert error <= TOLERANCE


@pytest.mark.parametrize(("sink", "window"), [(0, 16), (1, 1), (16, 48), (4, 508)])
def test_other_shapes_of_the_window(checkpoint: Path, history: list[int], sink: int, window: int) -> None:
    expected = Reference(checkpoint).logits(history, sink, window)
    assert law_error(checkpoint, history, expected, append_size=33, sink=sink, window=window) <= TOLERANCE


@pytest.mark.parametrize("chunk", [1, 16, 128])
def test_the_slack_of_the_ring_does_not_matter(
    checkpoint: Path, history: list[int], reference_logits: Array, chunk: int
) -> None:
    geometry = LaneGeometry(SINK, WINDOW, chunk)
    lane = Lane(geometry, 0, SINK, WINDOW)
    logits = append(poisoned_verifier(checkpoint, geometry, num_lanes=1), lane, history)
    assert relative_error(logits, reference_logits[-1]) <= TOLERANCE


def test_a_session_may_ask_for_less_than_its_lane(checkpoint: Path, history: list[int]) -> None:
    geometry = LaneGeometry(sink=8, window=128, chunk=32)
    lane = Lane(geometry, 0, sink=2, window=40)
    logits = append(poisoned_verifier(checkpoint, geometry, num_lanes=1), lane, history)
    assert relative_error(logits, Reference(checkpoint).logits(history, 2, 40)[-1]) <= TOLERANCE


def test_four_sessions_in_one_step_equal_each_alone(checkpoint: Path, history: list[int]) -> None:
    """Lanes of different lengths, shapes and phases (prefill beside decode) share every step."""
    geometry = LaneGeometry(SINK, WINDOW, chunk=32)
    shapes = [(SINK, WINDOW), (0, 64), (2, 17), (SINK, WINDOW)]
    sizes = [32, 1, 7, 3]
    histories = [history[shift : shift + 400] for shift in (0, 50, 100, 150)]
    verifier = poisoned_verifier(checkpoint, geometry, num_lanes=4)
    lanes = [Lane(geometry, 3 - number, *shape) for number, shape in enumerate(shapes)]
    for _ in range(100):
        rows = [
            (lane, lane.row(tuple(tokens[lane.length : lane.length + size])))
            for lane, tokens, size in zip(lanes, histories, sizes, strict=True)
            if lane.length < len(tokens)
        ]
        verifier.forward([row for _, row in rows])
        for lane, row in rows:
            lane.commit(row)
    together = verifier.logits([lane.index for lane in lanes])
    for lane, tokens, logits in zip(lanes, histories, together, strict=True):
        alone = Reference(checkpoint).logits(tokens[: lane.length], lane.sink, lane.window)[-1]
        assert relative_error(logits, alone) <= TOLERANCE


@pytest.mark.parametrize("start", [16 * 64, 10**6, 10**9])
def test_far_down_a_session_angles_are_as_good_as_at_its_start(
    checkpoint: Path, history: list[int], start: int
) -> None:
    """Without sinks only distances count: a session that begins at any index says the same.

    Angles in float32 would be off by 1 % at a million tokens.
    """
    geometry = LaneGeometry(sink=0, window=16, chunk=32)
    lane = Lane(geometry, 0, sink=0, window=16, length=start)
    before = np.arange(start - geometry.num_slots, start)
    lane.slot_indices[geometry.slots(before, 0)] = before
    verifier = poisoned_verifier(checkpoint, geometry, num_lanes=1)
    for tensor in (*verifier.slab.keys, *verifier.slab.values):
        tensor.zero_()  # what the first tokens see of the time before; forgotten 16 tokens a layer later
    logits = append(verifier, lane, history[:400])
    expected = Reference(checkpoint).logits(history[:400], 0, 16)[-1]
    assert relative_error(logits, expected) <= TOLERANCE


def test_rows_that_are_not_committed_leave_no_trace(
    checkpoint: Path, history: list[int], reference_logits: Array
) -> None:
    """A rejected draft or a cancelled step is overwritten; nothing has to be undone."""
    geometry = LaneGeometry(SINK, WINDOW, chunk=32)
    verifier = poisoned_verifier(checkpoint, geometry, num_lanes=1)
    lane = Lane(geometry, 0, SINK, WINDOW)
    while lane.length < 500:
        verifier.forward([lane.row(tuple(reversed(history[:32])))])  # never committed
        append(verifier, lane, history[lane.length : lane.length + 5])
    logits = append(verifier, lane, history[lane.length :])
    assert relative_error(logits, reference_logits[-1]) <= TOLERANCE


def test_inside_the_window_it_is_transformers(checkpoint: Path, history: list[int]) -> None:
    inside = history[: SINK + WINDOW]
    expected = transformers_logits(checkpoint, inside).double().numpy()
    assert law_error(checkpoint, inside, expected, append_size=1, sink=SINK, window=WINDOW) <= TOLERANCE


def test_greedy_tokens_inside_the_window_are_those_of_transformers(checkpoint: Path, history: list[int]) -> None:
    prompt = history[:40]
    geometry = LaneGeometry(SINK, window=300, chunk=32)
    verifier = poisoned_verifier(checkpoint, geometry, num_lanes=1)
    lane = Lane(geometry, 0, SINK, 300)
    logits = append(verifier, lane, prompt)
    tokens: list[int] = []
    for _ in range(200):
        tokens.append(choose(logits, Sampling(), lane.length))
        logits = append(verifier, lane, tokens[-1:])
    model = Qwen3ForCausalLM.from_pretrained(checkpoint).eval()
    assert tokens == greedy_tokens(model, prompt, 200)


def test_bfloat16_stays_close_to_the_law(bfloat16_checkpoint: Path, history: list[int]) -> None:
    """The contract's bound: KL <= 1e-3 a position, and the same argmax where the top-2 margin exceeds 0.1."""
    geometry = LaneGeometry(SINK, WINDOW, chunk=32)
    verifier = poisoned_verifier(bfloat16_checkpoint, geometry, num_lanes=1, dtype="auto")
    assert verifier.facts.dtype == "bfloat16"
    reference = Reference(bfloat16_checkpoint).logits(history, SINK, WINDOW)
    lane = Lane(geometry, 0, SINK, WINDOW)
    for start in range(0, NUM_TOKENS, 10):
        logits = append(verifier, lane, history[start : start + 10])
        expected = reference[lane.length - 1]
        assert _kl(expected, logits.astype(np.float64)) <= 1e-3
        second, first = np.sort(expected)[-2:]
        assert first - second <= 0.1 or np.argmax(logits) == np.argmax(expected)


def _kl(expected: Array, logits: Array) -> float:
    """KL divergence of two rows of logits, in nats."""
    p, q = (row - row.max() - np.log(np.exp(row - row.max()).sum()) for row in (expected, logits))
    return float((np.exp(p) * (p - q)).sum())
