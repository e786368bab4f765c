"""What a GGUF file's quantization loses in Kakeya and in llama.cpp, beside the file's own numbers in float32."""

from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from kakeya_bench.report.quantities import Precise, Share
from kakeya_bench.rivals import llama_cpp
from kakeya_worker import model_check
from kakeya_worker.model_check.agreement import CHUNK, Agreement, Floats, scored
from kakeya_worker.torch_backend import TorchVerifier

TEXTS = Path("docs/decisions").absolute()
OWN, INT8, LLAMA_OWN, LLAMA_Q8_0 = "the file's own format", "int8", "llama.cpp on the file", "llama.cpp's Q8_0"
NUM_THREADS = 2


def measured(path: Path, num_tokens: int, directory: Path, step: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """By contestant.

    Args:
        path: of the GGUF file.
        directory: for others.

    Raises:
        RivalFailed: llama.cpp did not run.
    """
    truth = _verifier(path, "float32")
    token_ids = tokens(truth.facts.tokenizer, num_tokens)
    expected = list(scored(truth, token_ids))
    step("float32")
    q8_0 = llama_cpp.requantized(
        llama_cpp.requantized(path, directory / "f32.gguf", "F32"), directory / "q8_0.gguf", "Q8_0"
    )
    found = {}
    for name, weights in ((OWN, "gguf"), (INT8, "int8")):
        found[name] = compared(scored(_verifier(path, weights), token_ids), expected, token_ids)
        step(name)
    for name, file in ((LLAMA_OWN, path), (LLAMA_Q8_0, q8_0)):
        logits = llama_cpp.logits(file, np.asarray([token_ids]), kv_type="f16")[0]
        found[name] = compared((logits[at : at + CHUNK] for at in range(0, len(logits), CHUNK)), expected, token_ids)
        step(name)
    return found


def tokens(tokenizer: Path | None, num_tokens: int) -> list[int]:
    """Of English: a story, and then decisions of this project."""
    story = files(model_check).joinpath("sample.txt").read_text("utf-8")
    text = "\n".join([story, *(path.read_text("utf-8") for path in sorted(TEXTS.glob("*.md")))])
    ids: list[int] = Tokenizer.from_file(str(tokenizer)).encode(text).ids
    return ids[:num_tokens]


def compared(logits: Iterable[Floats], expected: Iterable[Floats], token_ids: list[int]) -> dict[str, Any]:
    """Both over the text, in the same chunks."""
    agreement = Agreement()
    for ours, theirs in zip(logits, expected, strict=True):
        start = agreement.num_positions
        agreement.add(ours, theirs, token_ids[start + 1 : start + 1 + len(theirs)])
    perplexity, of_truth = agreement.perplexities
    return {
        "mean KL": Precise(agreement.mean_kl),
        "max KL": Precise(agreement.max_kl),
        "same token": Share(agreement.top1),
        "perplexity": Precise(perplexity),
        "in float32": Precise(of_truth),
    }


def ratios(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Mean divergences, ours in times of theirs."""
    return {
        "int8_kl_over_q8_0": found[INT8]["mean KL"] / found[LLAMA_Q8_0]["mean KL"],
        "q4_kl_over_llama": found[OWN]["mean KL"] / found[LLAMA_OWN]["mean KL"],
    }


def _verifier(path: Path, weights: str) -> TorchVerifier:
    kv_dtype = "float32" if weights == "float32" else "auto"
    return TorchVerifier(str(path), weights=weights, kv_dtype=kv_dtype, num_threads=NUM_THREADS, cache_directory=None)
