"""What `--weights auto` means on this machine, for tests that check bytes."""

from kakeya_worker.torch_backend.exact import integer_product
from kakeya_worker.torch_backend.mode import choose_mode


def kv_item_bytes(checkpoint_dtype: str = "float32") -> int:
    """Bytes of one element of K or V: of bfloat16 beside int8, else of the checkpoint's own type."""
    return choose_mode("auto", "auto", checkpoint_dtype).kv_type.dtype.itemsize


def is_exact() -> bool:
    """Whether equal tokens get equal bits."""
    return choose_mode("auto", "auto", "bfloat16").product is not None


def without_vectors() -> str:
    """The weights of a model of float32 or of GGUF's blocks where no kernel has vectors."""
    is_fast = integer_product.native_is_fast() and integer_product.is_exact(integer_product.native)
    return "int8" if is_fast else "float32"
