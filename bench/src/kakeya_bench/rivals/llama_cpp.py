"""llama.cpp's Python binding, compiled from its source package on first use, and what it computes for others."""

from pathlib import Path

import numpy as np

from kakeya_bench.rivals.command import BENCH, CommandFailed, PythonEnvironment, RivalFailed, say
from kakeya_bench.rivals.process import own_process

REQUIREMENTS = Path(__file__).with_name("llama_cpp.txt")
BINDING = PythonEnvironment(BENCH / "llama-cpp", REQUIREMENTS)
TOOLS = PythonEnvironment(BENCH / "llama-cpp-tools", Path(__file__).with_name("llama_cpp_tools.txt"))


def prepare() -> None:
    """Makes the binding's environment where it is missing or of other requirements: minutes, with progress on stderr.

    Raises:
        RivalFailed: it could not be built.
    """
    if not BINDING.is_ready:
        say(f"building llama.cpp in {BINDING.directory} (several minutes, once; log: {BINDING.log.name} there)")
    try:
        BINDING.prepare()
    except CommandFailed as error:
        raise RivalFailed(f"llama.cpp did not build (it needs a C and a C++ compiler): {error}") from error


def gguf(checkpoint: Path, matrix_type: str) -> Path:
    """The checkpoint as a GGUF file beside its weights, matrices in F32 or Q8_0. Raises RivalFailed."""
    TOOLS.prepare()
    part = checkpoint / f"{matrix_type}.part"
    with own_process(TOOLS.packages) as process:
        process.call("kakeya_bench.rivals.gguf_file:write", checkpoint, matrix_type, part)
    return part.rename(part.with_suffix(".gguf"))


def requantized(source: Path, target: Path, kind: str) -> Path:
    """A GGUF file in another kind, e.g. Q4_K_M, by its own quantizer; `prepare` built it. Raises RivalFailed."""
    if not target.is_file():
        part = target.with_suffix(".part")
        with own_process(BINDING.packages) as process:
            process.call("kakeya_bench.rivals.quantizer:quantize", source, part, kind)
        part.rename(target)
    return target


def logits(model: Path, sequences: np.ndarray, kv_type: str) -> np.ndarray:
    """llama.cpp's logits after every token, with K and V in f16 or f32; `prepare` built it. Raises RivalFailed.

    Args:
        sequences: token ids [sequences, tokens], each a conversation of its own.

    Returns:
        float32 [sequences, tokens, vocab].
    """
    with own_process(BINDING.packages) as process:
        found: np.ndarray = process.call("kakeya_bench.rivals.logits:logits", model, sequences, kv_type)
    return found
