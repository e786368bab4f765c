"""`kakeya models check`: a model's logits, as it runs here, beside those of its own numbers in float32."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from kakeya_shared import installed_models, plugins
from kakeya_worker.engine.seams.verifier import ModelFacts, ModelRefused
from kakeya_worker.loading import load_verifier
from kakeya_worker.model_check.agreement import Agreement, Floats, most_tokens, scored
from kakeya_worker.models import checkpoint, families
from kakeya_worker.settings import WorkerSettings

MOST_TOKENS: Final = 512
MOST_KL: Final = 0.02
"""Nats a token: ten times what int8 loses on a trained model of 135 million weights."""
_REFERENCE: Final = "float32"
_ITEM_BYTES: Final = 4
_REPORT_SECONDS: Final = 2.0

Report = Callable[[str], None]


class CheckError(Exception):
    """Nothing can be compared; the message says why, in one line."""


@dataclass(frozen=True)
class Checked:
    """What came out.

    Attributes:
        weights: the type that the model's weights have here.
    """

    model: str
    backend: str
    weights: str
    agreement: Agreement
    most_kl: float

    @property
    def is_good(self) -> bool:
        return self.agreement.mean_kl <= self.most_kl

    @property
    def document(self) -> dict[str, Any]:
        """For programs; what is not finite is null."""
        model, reference = self.agreement.perplexities
        figures = {
            "kl_mean": self.agreement.mean_kl,
            "kl_max": self.agreement.max_kl,
            "top1_agreement": self.agreement.top1,
            "perplexity": model,
            "reference_perplexity": reference,
        }
        finite = {name: value if np.isfinite(value) else None for name, value in figures.items()}
        told = {"model": self.model, "backend": self.backend, "weights": self.weights, "reference": _REFERENCE}
        counted = {"num_tokens": self.agreement.num_positions, "max_kl": self.most_kl, "good": self.is_good}
        return told | finite | counted

    @property
    def lines(self) -> list[str]:
        """For people."""
        model, reference = self.agreement.perplexities
        verdict = "good" if self.is_good else "it loses more than it should"
        return [
            f"{self.model} as {self.weights} ({self.backend}), beside its own numbers in {_REFERENCE}, "
            f"over {self.agreement.num_positions} tokens",
            f"KL a token: mean {self.agreement.mean_kl:.2g}, max {self.agreement.max_kl:.2g} nats",
            f"the same token most likely: {100 * self.agreement.top1:.1f} % of positions",
            f"perplexity: {model:.4g}, in {_REFERENCE} {reference:.4g}",
            f"verdict: {verdict} (mean KL {'<=' if self.is_good else '>'} {self.most_kl:g})",
        ]


def check(settings: WorkerSettings, text_file: Path | None, num_tokens: int, most_kl: float, report: Report) -> Checked:
    """Loads the model twice, one after the other.

    Args:
        settings: of a worker that would serve it.
        text_file: what is said; None: a text that is shipped.
        num_tokens: of the text, at most.

    Raises:
        CheckError
    """
    text = _text(text_file)
    with_numbers = settings.model_copy(update={"weights": _REFERENCE, "kv_dtype": _REFERENCE})
    num_reference_bytes = _reference_bytes(settings.model)
    report(f"loading {settings.model} as a worker would")
    facts, token_ids, logits = _first(settings, text, num_tokens, report)
    gc.collect()  # one of the two is in memory at a time
    _check_room(num_reference_bytes)
    report(f"loading {settings.model} in {_REFERENCE}, {num_reference_bytes:,} bytes")
    agreement = _second(with_numbers, token_ids, logits, report)
    return Checked(settings.model, facts.backend, facts.weights, agreement, most_kl)


def _first(
    settings: WorkerSettings, text: str, num_tokens: int, report: Report
) -> tuple[ModelFacts, list[int], list[Floats]]:
    """The model as it runs: what is known of it, the text's tokens, and the logits after each."""
    verifier = _loaded(settings)
    facts = verifier.facts
    token_ids = _token_ids(facts, text)[: min(num_tokens, most_tokens(facts.max_positions))]
    if len(token_ids) < 2:
        raise CheckError("the text has fewer than two tokens")
    report(f"it runs as {facts.weights} ({facts.backend}); {len(token_ids)} tokens")
    return facts, token_ids, list(scored(verifier, token_ids))


def _second(settings: WorkerSettings, token_ids: Sequence[int], logits: list[Floats], report: Report) -> Agreement:
    agreement, reported_at = Agreement(), time.monotonic()
    for reference in scored(_loaded(settings), token_ids):
        start = agreement.num_positions
        agreement.add(logits.pop(0), reference, token_ids[start + 1 : start + 1 + len(reference)])
        if time.monotonic() - reported_at > _REPORT_SECONDS:
            reported_at = time.monotonic()
            report(f"{agreement.num_positions} of {len(token_ids)} tokens compared")
    return agreement


def _loaded(settings: WorkerSettings) -> Any:
    try:
        return load_verifier(settings)
    except (plugins.PluginError, ModelRefused) as error:
        raise CheckError(str(error)) from error
    except (OSError, UnicodeError, MemoryError) as error:
        raise CheckError(f"{settings.model} cannot be loaded: {error}") from error


def _reference_bytes(model: str) -> int:
    """That the weights take in float32. Raises CheckError."""
    try:
        place = checkpoint.locate(installed_models.resolve(model))
        return families.parse(checkpoint.read_config(place)).num_weights * _ITEM_BYTES
    except (ModelRefused, plugins.PluginError, OSError) as error:
        raise CheckError(str(error)) from error


def _check_room(num_bytes: int) -> None:
    available = psutil.virtual_memory().available
    if num_bytes > available:
        raise CheckError(f"the reference takes {num_bytes:,} bytes in {_REFERENCE}, and {available:,} are available")


def _token_ids(facts: ModelFacts, text: str) -> list[int]:
    if facts.tokenizer is None:
        raise CheckError("the model brings no tokenizer that can be read, by which a text becomes tokens")
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise CheckError(f"needs the module {error.name!r}: pip install tokenizers") from error
    ids: list[int] = Tokenizer.from_file(str(facts.tokenizer)).encode(text).ids
    return ids


def _text(file: Path | None) -> str:
    if file is None:
        return files(__package__).joinpath("sample.txt").read_text("utf-8")
    try:
        return file.expanduser().read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise CheckError(f"{file} cannot be read: {reason}") from error
