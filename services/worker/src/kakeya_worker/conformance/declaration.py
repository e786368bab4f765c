"""What a verifier plugin says of itself to the conformance suite.

A declaration is found by the entry point group `kakeya.verifier_conformance`, under the plugin's own name.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

TOLERANCES = ("exact", "float32", "bfloat16")
NUMERIC_MUTATIONS = ("key-angle-plus-one", "unrounded-kv", "ring-order-sum", "batch-dependent-reduction")
"""What only a backend can break in itself, and an exact one must: see CONFORMANCE.md."""


@dataclass(frozen=True)
class Mode:
    """One way to hold weights and KV.

    Attributes:
        weights: as the verifier's argument.
        kv_dtype: as the verifier's argument.
        tolerance: how near to the law: "exact" is equal bits; "float32" is 1e-4 of the largest logit; "bfloat16" is a
            KL divergence of 1e-3 at each position, and an equal argmax where the top-2 margin exceeds 0.1.
    """

    weights: str
    kv_dtype: str
    tolerance: str

    def __post_init__(self) -> None:
        if self.tolerance not in TOLERANCES:
            raise ValueError(f"tolerance {self.tolerance!r} is none of {', '.join(TOLERANCES)}")

    @property
    def name(self) -> str:
        """As it stands in a test's id."""
        return self.weights if self.weights == self.kv_dtype else f"{self.weights}+{self.kv_dtype}"


@dataclass(frozen=True)
class Mutation:
    """One way to break the plugin, for as long as a context lasts.

    Attributes:
        broken: verifiers that are loaded and run inside are broken.
        modes: those in which it must show.
    """

    broken: Callable[[], AbstractContextManager[None]]
    modes: tuple[Mode, ...]


@dataclass(frozen=True)
class Declaration:
    """What the suite runs, and what it may not expect.

    Attributes:
        families: values of `model_type` that the plugin covers; what it leaves out is reported.
        modes: all of the plugin's.
        environments: by name, the variables of a process in which an exact mode computes as it does on other machines.
        mutations: by name; an exact mode needs all of NUMERIC_MUTATIONS.
        expected_failures: reasons, by a pattern (as of fnmatch) of test ids such as
            "test_law.py::test_far_down_a_session*-qwen3-*". Such a test must fail.
    """

    families: tuple[str, ...]
    modes: tuple[Mode, ...]
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    mutations: Mapping[str, Mutation] = field(default_factory=dict)
    expected_failures: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.families or not self.modes:
            raise ValueError("a declaration names at least one family and one mode")
        for pattern, reason in self.expected_failures.items():
            if not reason.strip():
                raise ValueError(f"the expected failure of {pattern!r} has no reason")
