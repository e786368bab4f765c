"""Types of floats that weights, activations and KV can have."""

FLOAT_TYPES = ("float32", "bfloat16")


def float_type(kv_dtype: str, checkpoint_dtype: str) -> str:
    """What "auto" stands for: the type of the KV that is asked for, else the checkpoint's own, else float32."""
    return next((dtype for dtype in (kv_dtype, checkpoint_dtype) if dtype in FLOAT_TYPES), "float32")
