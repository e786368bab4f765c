"""kakeya-nano: a small trained model, its tokenizer and its card, as data of this package."""

from pathlib import Path


def directory() -> Path:
    """The checkpoint's directory, in the form of the Hugging Face Hub; its name is the model's."""
    return Path(__file__).parent / "kakeya-nano"
