"""What a test examines: a plugin with one model in one mode."""

from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from kakeya_shared import plugins
from kakeya_worker.conformance.declaration import Declaration, Mode
from kakeya_worker.conformance.tools.checkpoints import VARIANTS, Variant
from kakeya_worker.conformance.tools.reference import Array, Reference
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import Verifier

VERIFIERS, DECLARATIONS = "kakeya.verifier", "kakeya.verifier_conformance"
_BEGINNING = 8
"""Leading tokens by which conversations are told apart."""


@dataclass(frozen=True)
class Case:
    """One combination that a plugin declares; `str()` of it stands in a test's id."""

    plugin: str
    variant: Variant
    mode: Mode

    def __str__(self) -> str:
        return f"{self.plugin}-{self.variant.name}-{self.mode.name}"

    @property
    def dtype(self) -> str:
        """Of the checkpoint's weights; what rounds them to bfloat16 anyway is compared on such a one."""
        return "bfloat16" if self.mode.tolerance == "bfloat16" else "float32"


@dataclass(eq=False)
class Subject:
    """A case and its checkpoint.

    Attributes:
        directory: of the checkpoint.
    """

    case: Case
    directory: Path
    _loaded: dict[tuple[LaneGeometry, int], Verifier] = field(default_factory=dict, repr=False)

    @property
    def variant(self) -> Variant:
        return self.case.variant

    @property
    def tolerance(self) -> str:
        return self.case.mode.tolerance

    def load(self, directory: Path | None = None, *, num_threads: int = 1, cache: Path | None = None) -> Verifier:
        """The plugin's verifier in the case's mode, with the case's checkpoint or another. Raises ModelRefused."""
        verifier_class = _verifier_class(self.case.plugin)
        mode = self.case.mode
        verifier: Verifier = verifier_class(
            str(directory or self.directory),
            weights=mode.weights,
            kv_dtype=mode.kv_dtype,
            num_threads=num_threads,
            cache_directory=cache,
        )
        return verifier

    def fresh(self, geometry: LaneGeometry, num_lanes: int = 1) -> Verifier:
        """A verifier of this test alone, in whose slab every slot is NaN until it is written."""
        verifier = self.load()
        verifier.allocate(geometry, num_lanes)
        verifier.poison()
        return verifier

    def verifier(self, geometry: LaneGeometry, num_lanes: int = 1) -> Verifier:
        """As `fresh`, but loaded once for all tests; a read of what an earlier test wrote shows."""
        key = (geometry, num_lanes)
        if key not in self._loaded:
            self._loaded[key] = self.fresh(geometry, num_lanes)
        self._loaded[key].poison()
        return self._loaded[key]

    def law(self, token_ids: tuple[int, ...], sink: int, window: int) -> Array:
        """What the logits after each token must be; [tokens, vocab]."""
        conversation = _conversation(self.variant, self.case.dtype, sink, window, token_ids[:_BEGINNING])
        return conversation.logits(token_ids)


class _Conversation:
    """A session of the reference, which is slow: each token is computed once, however many tests ask for it."""

    def __init__(self, variant: Variant, dtype: str, sink: int, window: int) -> None:
        self._begin = partial(Reference, variant, sink, window, dtype)
        self._reference = self._begin()
        self._token_ids: tuple[int, ...] = ()
        self._logits: Array = np.empty((0, variant.config["vocab_size"]))

    def logits(self, token_ids: tuple[int, ...]) -> Array:
        """After each token; [tokens, vocab]."""
        num_known = len(self._token_ids)
        if token_ids[:num_known] != self._token_ids[: len(token_ids)]:
            return self._begin().append(token_ids)
        if len(token_ids) > num_known:
            self._logits = np.concatenate([self._logits, self._reference.append(token_ids[num_known:])])
            self._token_ids = token_ids
        return self._logits[: len(token_ids)]


@lru_cache(maxsize=256)
def _conversation(variant: Variant, dtype: str, sink: int, window: int, beginning: tuple[int, ...]) -> _Conversation:
    """The one that begins so."""
    return _Conversation(variant, dtype, sink, window)


@cache
def _verifier_class(plugin: str) -> Any:
    return plugins.load(VERIFIERS, plugin)


@cache
def declaration(plugin: str) -> Declaration:
    """What a plugin says of itself. Raises PluginError where it says nothing."""
    found = plugins.load(DECLARATIONS, plugin)
    if not isinstance(found, Declaration):
        raise plugins.PluginError(f"the {DECLARATIONS} entry point {plugin!r} names no Declaration but {found!r}")
    return found


def cases(plugin: str) -> list[Case]:
    """Every variant of every family that the plugin covers, in each of its modes."""
    declared = declaration(plugin)
    return [
        Case(plugin, variant, mode)
        for variant in VARIANTS
        if variant.family in declared.families
        for mode in declared.modes
    ]
