"""What int8 loses against float32, beside what llama.cpp's Q8_0 loses on the same weights.

Random checkpoints, plain and with outlier channels; the same tokens are fed to all, and every position is compared:
KL(float32 || quantized) of the next token's distribution, and whether the greedy token is equal. Exits with 1 when
int8's mean KL exceeds twice Q8_0's on any checkpoint: int8 may then not be the default. Exits with 2 when that cannot
be judged.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from kakeya_bench.engine.stepping import Lanes
from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import at_most
from kakeya_bench.rivals import llama_cpp
from kakeya_bench.rivals.command import RivalFailed
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.torch_backend import TorchVerifier
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.int8.checkpoints import OUTLIERS, SHAPES, make

Logits = NDArray[np.float32]  # [sequences, tokens, vocab]

KL_BOUND = 2.0  # int8's mean KL as a multiple of Q8_0's
CONVERSION_TOLERANCE = 1e-3  # of the largest logit; what llama.cpp says of the unquantized GGUF file
NUM_SEQUENCES = 4
NUM_TOKENS = 192  # a sequence
NUM_THREADS = 1


class Int8Settings(BenchSettings):
    pass


def measure(_: Int8Settings, stage: Stage) -> Found:
    stage.show(0.0, "building llama.cpp where it is missing")
    llama_cpp.prepare()
    step = stage.steps(len(SHAPES) * (1 + len(OUTLIERS)))
    comparisons = []
    for shape in SHAPES:
        for checkpoint in make(stage.directory, shape):
            comparisons.append(compare(checkpoint))
            step(checkpoint.name)
    worst = max(each["ratio"] for each in comparisons)
    document = {"num_positions": NUM_SEQUENCES * NUM_TOKENS, "kl_bound": KL_BOUND, "checkpoints": comparisons}
    return document, [at_most("kl", "int8's mean KL in times of Q8_0's, at worst:", Precise(worst), Precise(KL_BOUND))]


def compare(checkpoint: Path) -> dict[str, Any]:
    """Runs a checkpoint four times over; what both quantizations lose on it.

    Raises:
        RivalFailed: llama.cpp did not run, or its float32 logits are not Kakeya's, or some logits are not finite.
    """
    vocab_size = json.loads((checkpoint / "config.json").read_text())["vocab_size"]
    sequences = np.random.default_rng(0).integers(vocab_size, size=(NUM_SEQUENCES, NUM_TOKENS))
    expected = kakeya_logits(checkpoint, "float32", sequences)
    converted = llama_cpp.logits(llama_cpp.gguf(checkpoint, "F32"), sequences, kv_type="f32")
    conversion_error = float(np.abs(converted - expected).max() / np.abs(expected).max())
    if not conversion_error <= CONVERSION_TOLERANCE:
        raise RivalFailed(
            f"{checkpoint.name}: the GGUF file is not the same model: llama.cpp's float32 logits differ by "
            f"{conversion_error:.1e} of the largest logit, {CONVERSION_TOLERANCE:.0e} is allowed"
        )
    q8_0 = llama_cpp.logits(llama_cpp.gguf(checkpoint, "Q8_0"), sequences, kv_type="f16")
    int8 = kakeya_logits(checkpoint, "int8", sequences)
    if not (np.isfinite(q8_0).all() and np.isfinite(int8).all()):
        raise RivalFailed(f"{checkpoint.name}: some logits are not finite")
    ours, theirs = loss(expected, int8), loss(expected, q8_0)
    return {
        "checkpoint": checkpoint.name,
        "int8": ours,
        "q8_0": theirs,
        "conversion_error": conversion_error,
        "ratio": ours["mean_kl"] / theirs["mean_kl"],
    }


def kakeya_logits(directory: Path, weights: str, sequences: NDArray[np.int64]) -> Logits:
    """The logits after every token, inside the window; sequences [sequences, tokens], one in each lane."""
    verifier = TorchVerifier(
        str(directory), weights=weights, kv_dtype="auto", num_threads=NUM_THREADS, cache_directory=None
    )
    num_sequences, num_tokens = sequences.shape
    geometry = LaneGeometry(sink=4, window=num_tokens, chunk=1)
    verifier.allocate(geometry, num_sequences)
    lanes = Lanes(verifier, geometry, num_sequences)
    by_token = []
    for token_ids in sequences.T.tolist():
        lanes.forward([(token_id,) for token_id in token_ids])
        by_token.append(verifier.logits(list(range(num_sequences))))
    return np.stack(by_token, axis=1)


def loss(expected: Logits, quantized: Logits) -> dict[str, float]:
    """Over all positions: KL(float32 || quantized) in nats, and the share whose likeliest token is the same."""
    log_p, log_q = (log_softmax(logits.astype(np.float64), axis=-1) for logits in (expected, quantized))
    kl = (np.exp(log_p) * (log_p - log_q)).sum(-1)  # [sequences, tokens]
    agreement = expected.argmax(-1) == quantized.argmax(-1)
    return {"mean_kl": float(kl.mean()), "max_kl": float(kl.max()), "greedy_agreement": float(agreement.mean())}
