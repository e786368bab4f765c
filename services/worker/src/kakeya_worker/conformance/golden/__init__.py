"""Known answers: the transcripts of every variant in exact mode, the same on every machine."""

import json
import tempfile
from pathlib import Path

from kakeya_worker.conformance.exact_reference import ExactReference, ReferenceSession
from kakeya_worker.conformance.tools.checkpoints import Variant
from kakeya_worker.conformance.tools.transcript import SINK, WINDOW, Transcript, transcript

PATH = Path(__file__).with_name("bits.json")
KV_DTYPES = ("bfloat16", "float32", "int8")

Golden = dict[str, dict[str, Transcript]]
"""By type of the KV, and name of the variant."""


def read() -> Golden:
    """The committed answers."""
    golden: Golden = json.loads(PATH.read_text())
    return golden


def answer(variant: Variant, kv_dtype: str) -> Transcript:
    """What the exact reference says."""
    with tempfile.TemporaryDirectory() as directory:
        model = ExactReference(variant.write(Path(directory)), kv_dtype)
    return transcript(ReferenceSession(model, SINK, WINDOW), variant)
