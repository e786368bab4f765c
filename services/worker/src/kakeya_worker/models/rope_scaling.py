"""How a model stretches RoPE's frequencies: once and for all, never with the length of the history."""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.config_reader import positive

SUPPORTED = "what can run: default, linear, llama3"
_TWO_PI = Decimal("6.283185307179586476925286766559005768394338798750")
_DIGITS = 40


@dataclass(frozen=True)
class RopeScaling:
    """Parameters of one scaling; names as in config.json.

    Attributes:
        kind: default, linear (arXiv 2306.15595), llama3 (Llama 3.1's, arXiv 2407.21783), or factors.
        factors: by what each frequency is divided; GGUF files have them in place of llama3's parameters.
    """

    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: float = 8192.0
    factors: tuple[float, ...] = ()

    @classmethod
    def parse(cls, rope: dict[str, Any], max_positions: int) -> "RopeScaling":
        """Reads `rope_parameters` (transformers 5) or `rope_scaling` (4).

        Raises:
            ModelRefused: frequencies that depend on the length, so that old keys would need another angle; or a
                scaling that is not built.
        """
        kind = str(rope.get("rope_type", "default"))[:40]
        if any(isinstance(value, dict) for value in rope.values()):
            raise ModelRefused("RoPE that differs between layers cannot run")
        if kind in ("dynamic", "longrope", "su"):
            raise ModelRefused(
                f"RoPE scaling {kind!r} depends on the length of the history and cannot run in a session without an "
                f"end: keys are rotated once; {SUPPORTED}"
            )
        factors = rope.get("factors")
        if kind not in ("default", "linear", "llama3") and not (kind == "factors" and isinstance(factors, list)):
            raise ModelRefused(f"RoPE scaling {kind!r} cannot run; {SUPPORTED}")
        if rope.get("partial_rotary_factor", 1.0) != 1.0:
            raise ModelRefused("RoPE over a part of each head cannot run")
        if kind == "default":
            return cls()
        if kind == "factors":
            return cls(kind, factors=tuple(positive("RoPE's factor", factor) for factor in factors or ()))
        if kind == "linear":
            return cls(kind, positive("linear RoPE's factor", rope.get("factor")))
        return cls._parse_llama3(rope, max_positions)

    @classmethod
    def _parse_llama3(cls, rope: dict[str, Any], max_positions: int) -> "RopeScaling":
        names = ("factor", "low_freq_factor", "high_freq_factor")
        factor, low, high = (positive(f"llama3 RoPE's {name}", rope.get(name)) for name in names)
        name = "original_max_position_embeddings"
        original = positive(f"llama3 RoPE's {name}", rope.get(name, max_positions))
        if high <= low:
            raise ModelRefused("config.json: llama3's high_freq_factor must exceed its low_freq_factor")
        return cls("llama3", factor, low, high, original)

    def frequencies(self, theta: float, head_dim: int) -> NDArray[np.float64]:
        """In turns a token, each the float64 nearest to its true value; [head_dim / 2].

        Computed in decimal: the powers of one libm are not those of another.

        Raises:
            ModelRefused: there are not as many factors.
        """
        if self.kind == "factors" and len(self.factors) != head_dim // 2:
            raise ModelRefused(f"RoPE has {len(self.factors)} factors for {head_dim // 2} frequencies")
        with localcontext() as context:
            context.prec = _DIGITS
            base = [Decimal(theta) ** (Decimal(-2 * i) / head_dim) / _TWO_PI for i in range(head_dim // 2)]
            if self.kind == "factors":
                return np.array([float(turns / Decimal(by)) for turns, by in zip(base, self.factors, strict=True)])
            return np.array([float(self._scaled(turns)) for turns in base])

    def _scaled(self, turns: Decimal) -> Decimal:
        factor = Decimal(self.factor)
        if self.kind != "llama3":
            return turns / factor
        # Long waves are stretched, short ones stay, those between are interpolated by how often they fit.
        low, high = Decimal(self.low_freq_factor), Decimal(self.high_freq_factor)
        num_waves = Decimal(self.original_max_position_embeddings) * turns
        share = min(max((num_waves - low) / (high - low), Decimal(0)), Decimal(1))
        return (1 - share) * turns / factor + share * turns
