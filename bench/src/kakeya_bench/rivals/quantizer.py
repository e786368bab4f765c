"""llama.cpp's own quantizer; imported where its binding is found."""

import ctypes
from pathlib import Path

import llama_cpp  # type: ignore[import-not-found]  # in an environment of its own

from kakeya_bench.rivals.command import RivalFailed

_KINDS = {
    "F32": llama_cpp.LLAMA_FTYPE_ALL_F32,
    "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q4_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
}


def quantize(source: Path, target: Path, kind: str) -> None:
    """Writes a GGUF file anew in one of the kinds that its users ask for; what was rounded is rounded again."""
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = _KINDS[kind]
    parameters.allow_requantize = True
    status = llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(parameters))
    if status:
        raise RivalFailed(f"llama_model_quantize of {source} to {kind}: status {status}")
