"""What a user asks of the bench: `kakeya bench session --help`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator
from pydantic_settings import NoDecode

from kakeya.kv_bytes import ITEM_BYTES
from kakeya_bench.conversation.settings import REPORT, BenchSettings
from kakeya_shared.settings.service import setting, split

SUMMARY = "long sessions, turn after turn: memory and the cost of a turn stay flat, or a gate says so"
DEFAULT_TURNS = 120
"""The fewest that all gates can judge: a hundred after the warm-up and until the lane is full."""
PRESETS = {"4h": {"duration_s": 14_400.0, "turn_spacing_s": 30.0}}
GATES = ("kv_bounded", "rss_bounded", "prefill_bounded", "errors", "exact")
Gate = Literal["kv_bounded", "rss_bounded", "prefill_bounded", "errors"]


class SessionSettings(BenchSettings):
    __doc__ = f"""Plays {SUMMARY}.

    Progress goes to standard error, a summary to standard output, everything to report.json, report.html and PNGs.
    Exit status: 0 when every gate is passed; 1 where one fails; 2 where one cannot be judged, or the bench cannot run
    as asked; 130 on Ctrl-C, which still writes the report. docs/benches.md says how to read it.
    """

    model_config = BenchSettings.configured(command="session")

    GROUPS: ClassVar[Mapping[str, str]] = {
        "the length of the run": "sessions turns duration_s turn_spacing_s preset warm_up_turns",
        "the gates": "config kv_dtype exact skip_gate",
        REPORT: "checkpoint_s",
    }
    EXAMPLES: ClassVar[Sequence[str]] = (
        "kakeya bench session --turns 200 --exact",
        "kakeya bench session --preset 4h --output four-hours",
        "kakeya bench session --random-tokens 32 --max-tokens 8 --skip-gate prefill_bounded",
    )

    sessions: int = setting(1, "sessions that are held at the same time", ge=1)
    turns: int | None = setting(
        None, "turns of each session", reason=f"{DEFAULT_TURNS} without a duration, as few as can be judged", ge=1
    )
    duration_s: float | None = setting(
        None, "no turn begins later", unit="seconds", reason="as many as the turns take", ge=0, allow_inf_nan=False
    )
    turn_spacing_s: float | None = setting(
        None, "from the start of a turn to the next", unit="seconds", reason="0: at once", ge=0, allow_inf_nan=False
    )
    preset: Literal["4h"] | None = setting(
        None, "4h: --duration-s 14400 --turn-spacing-s 30, 480 turns as a person would take them"
    )
    warm_up_turns: int = setting(
        5, "first turns of each session that no gate compares", reason="caches fill, threads start", ge=0
    )
    config: Path | None = setting(
        None, "the model's config.json or its directory; else the one beside the tokenizer", metavar="FILE"
    )
    kv_dtype: Literal[tuple(ITEM_BYTES)] | None = setting(  # type: ignore[valid-type]  # the words of the SDK
        None, "type of K and V, where the key is no operator's; else the worker is asked"
    )
    exact: bool = setting(
        False, "judge the gate `exact`, too: replay the transcript in one append and compare what comes next"
    )
    skip_gate: Annotated[tuple[Gate, ...], NoDecode, BeforeValidator(split)] = setting(
        (), "leave a gate out of the judgement; may be repeated", metavar="GATE"
    )
    checkpoint_s: float = setting(
        30.0,
        "between two reports of what there is so far",
        unit="seconds",
        reason="what is on disk outlives kill -9",
        gt=0,
        allow_inf_nan=False,
    )

    @model_validator(mode="after")
    def _length(self) -> Self:
        """A preset stands for what is not given itself."""
        for name, value in PRESETS.get(self.preset or "", {}).items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        if self.turns is None and self.duration_s is None:
            self.turns = DEFAULT_TURNS
        return self

    @property
    def skipped(self) -> tuple[str, ...]:
        """Gates that are not judged."""
        return tuple(name for name in GATES if name in self.skip_gate or (name == "exact" and not self.exact))

    def document(self) -> dict[str, object]:
        return super().document() | {
            "num_sessions": self.sessions,
            "num_turns": self.turns,
            "duration_seconds": self.duration_s,
            "turn_spacing_seconds": self.turn_spacing_s or 0.0,
            "num_warm_up_turns": self.warm_up_turns,
        }
