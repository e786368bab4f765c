"""`python -m kakeya_worker.conformance.golden` writes the known answers anew, by the exact reference.

Needed only where the numerics get a new version, or the conformance checkpoints change.
"""

import json

from kakeya_worker.conformance import golden
from kakeya_worker.conformance.tools.bit_variants import BIT_VARIANTS

if __name__ == "__main__":
    answers = {
        kv_dtype: {variant.name: golden.answer(variant, kv_dtype) for variant in BIT_VARIANTS}
        for kv_dtype in golden.KV_DTYPES
    }
    golden.PATH.write_text(json.dumps(answers, indent=2) + "\n")
