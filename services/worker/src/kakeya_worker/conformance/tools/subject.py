"""What a test examines: a plugin with one model in one mode."""

from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from kakeya_shared import plugins
from kakeya_worker.conformance.declaration import Declaration, Mode
from kakeya_worker.conformance.tools.checkpoints import VARIANTS, Variant
from kakeya_worker.conformance.tools.reference import Array, Reference
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import Verifier

VERIFIERS, DECLARATIONS = "kakeya.verifier", "kakeya.verifier_conformance"


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
        verifier_class: Any = plugins.load(VERIFIERS, self.case.plugin)
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
        return _law(self.variant, self.case.dtype, token_ids, sink, window)


@lru_cache(maxsize=64)
def _law(variant: Variant, dtype: str, token_ids: tuple[int, ...], sink: int, window: int) -> Array:
    return Reference(variant, sink, window, dtype).append(token_ids)


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
