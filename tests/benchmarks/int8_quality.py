"""What int8 loses against float32, beside what llama.cpp's Q8_0 loses on the same weights.

    python -m tests.benchmarks.int8_quality [--json FILE]

Random checkpoints, plain and with outlier channels (see int8_checkpoints.py); the same tokens are fed to all, and every
position is compared: KL(float32 || quantized) of the next token's distribution, and whether the greedy token is equal.

Exits with 1 when int8's mean KL exceeds twice Q8_0's on any checkpoint: int8 may then not be the default. Exits with
2 when that cannot be judged.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.torch_backend import TorchVerifier
from tests.benchmarks import llama_cpp_environment as llama_cpp
from tests.benchmarks.int8_checkpoints import SHAPES, Checkpoint, make
from tests.benchmarks.llama_cpp_environment import LlamaCppFailed

Logits = NDArray[np.float32]  # [sequences, tokens, vocab]

KL_BOUND = 2.0  # int8's mean KL as a multiple of Q8_0's
CONVERSION_TOLERANCE = 1e-3  # of the largest logit; what llama.cpp says of the unquantized GGUF file
NUM_SEQUENCES = 4
NUM_TOKENS = 192  # a sequence
NUM_THREADS = 1


class CannotJudge(Exception):
    """The numbers would not mean what they say; the message says why."""


@dataclass(frozen=True)
class Loss:
    """What a quantization loses, over all positions of a checkpoint.

    Attributes:
        mean_kl: KL(float32 || quantized) in nats.
        max_kl: the worst position's.
        greedy_agreement: share of positions whose likeliest token is the same.
    """

    mean_kl: float
    max_kl: float
    greedy_agreement: float


@dataclass(frozen=True)
class Comparison:
    """Both quantizations on one checkpoint.

    Attributes:
        conversion_error: of llama.cpp's float32 logits, as a share of the largest.
    """

    checkpoint: str
    int8: Loss
    q8_0: Loss
    conversion_error: float

    @property
    def ratio(self) -> float:
        """int8's mean KL as a multiple of Q8_0's."""
        return self.int8.mean_kl / self.q8_0.mean_kl


def compare(checkpoint: Checkpoint) -> Comparison:
    """Runs a checkpoint four times over.

    Raises:
        CannotJudge: llama.cpp's float32 logits are not Kakeya's, or some logits are not finite.
        LlamaCppFailed: llama.cpp did not run.
        ModelRefused: Kakeya cannot run it as asked.
    """
    vocab_size = json.loads((checkpoint.directory / "config.json").read_text())["vocab_size"]
    sequences = np.random.default_rng(0).integers(vocab_size, size=(NUM_SEQUENCES, NUM_TOKENS))
    expected = kakeya_logits(checkpoint.directory, "float32", sequences)
    converted = llama_cpp.logits(llama_cpp.gguf(checkpoint.directory, "F32"), sequences, kv_type="f32")
    conversion_error = float(np.abs(converted - expected).max() / np.abs(expected).max())
    if not conversion_error <= CONVERSION_TOLERANCE:
        raise CannotJudge(
            f"{checkpoint.name}: the GGUF file is not the same model: llama.cpp's float32 logits differ by "
            f"{conversion_error:.1e} of the largest logit, {CONVERSION_TOLERANCE:.0e} is allowed"
        )
    q8_0 = llama_cpp.logits(llama_cpp.gguf(checkpoint.directory, "Q8_0"), sequences, kv_type="f16")
    int8 = kakeya_logits(checkpoint.directory, "int8", sequences)
    if not (np.isfinite(q8_0).all() and np.isfinite(int8).all()):
        raise CannotJudge(f"{checkpoint.name}: some logits are not finite")
    return Comparison(checkpoint.name, loss(expected, int8), loss(expected, q8_0), conversion_error)


def kakeya_logits(directory: Path, weights: str, sequences: NDArray[np.int64]) -> Logits:
    """The logits after every token, inside the window; sequences [sequences, tokens], one in each lane."""
    verifier = TorchVerifier(
        str(directory), weights=weights, kv_dtype="auto", num_threads=NUM_THREADS, cache_directory=None
    )
    num_sequences, num_tokens = sequences.shape
    geometry = LaneGeometry(sink=4, window=num_tokens, chunk=1)
    verifier.allocate(geometry, num_sequences)
    retention = sink_window(SessionOptions(), geometry)
    lanes = [Lane(geometry, index, retention) for index in range(num_sequences)]
    by_token = []
    for token_ids in sequences.T.tolist():
        rows = [lane.row((token_id,)) for lane, token_id in zip(lanes, token_ids, strict=True)]
        verifier.forward(rows)
        for lane, row in zip(lanes, rows, strict=True):
            lane.commit(row)
        by_token.append(verifier.logits([lane.index for lane in lanes]))
    return np.stack(by_token, axis=1)


def loss(expected: Logits, quantized: Logits) -> Loss:
    """Compares position by position."""
    log_p, log_q = _log_softmax(expected), _log_softmax(quantized)
    kl = (np.exp(log_p) * (log_p - log_q)).sum(-1)  # [sequences, tokens]
    agreement = expected.argmax(-1) == quantized.argmax(-1)
    return Loss(float(kl.mean()), float(kl.max()), float(agreement.mean()))


def _log_softmax(logits: Logits) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    normalized: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return normalized


def report(comparisons: list[Comparison]) -> bool:
    """Prints a table; whether int8 kept the bound on every checkpoint."""
    heading = f"{'mean KL':>9} {'max KL':>9} {'greedy':>7}"
    print(f"{'':16} {'int8':^27}   {'llama.cpp Q8_0':^27}")
    print(f"{'checkpoint':16} {heading}   {heading} {'int8 / Q8_0':>12}")
    for comparison in comparisons:
        print(
            f"{comparison.checkpoint:16} {_columns(comparison.int8)}   {_columns(comparison.q8_0)} "
            f"{comparison.ratio:12.2f}{'' if comparison.ratio <= KL_BOUND else '  BROKEN'}"
        )
    worst = max(comparison.ratio for comparison in comparisons)
    verdict = "kept" if worst <= KL_BOUND else "BROKEN"
    print(
        f"{NUM_SEQUENCES * NUM_TOKENS} positions each; int8's mean KL is at most {worst:.2f} times Q8_0's; "
        f"bound of {KL_BOUND:g} {verdict}"
    )
    return worst <= KL_BOUND


def _columns(of: Loss) -> str:
    return f"{of.mean_kl:9.2e} {of.max_kl:9.2e} {of.greedy_agreement:7.1%}"


def as_json(comparisons: list[Comparison]) -> str:
    """The table and what it was judged by."""
    return json.dumps(
        {
            "num_positions": NUM_SEQUENCES * NUM_TOKENS,
            "kl_bound": KL_BOUND,
            "checkpoints": [{**asdict(comparison), "ratio": comparison.ratio} for comparison in comparisons],
        },
        indent=2,
    )


def run() -> Iterator[Comparison]:
    """One comparison a checkpoint. Raises as `compare` does."""
    llama_cpp.prepare()
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as directory:
            for checkpoint in make(Path(directory), shape):
                print(f"measuring {checkpoint.name}", file=sys.stderr, flush=True)
                yield compare(checkpoint)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    arguments = parser.parse_args()
    try:
        comparisons = list(run())
    except (CannotJudge, LlamaCppFailed, ModelRefused) as error:
        print(f"cannot judge int8: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        arguments.json.write_text(as_json(comparisons) + "\n")
    return 0 if report(comparisons) else 1


if __name__ == "__main__":
    sys.exit(main())
