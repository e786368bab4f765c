"""What a user asks of the bench: `kakeya bench quality --help`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, field_validator
from pydantic_settings import NoDecode

from kakeya_bench.conversation.settings import REPORT, RuntimeSettings
from kakeya_bench.quality import floors
from kakeya_shared import plugins
from kakeya_shared.process import processors
from kakeya_shared.settings.service import ServiceSettings, setting, split

POLICIES = "kakeya.retention"
SUMMARY = "what a bounded cache costs a model: recall, multi-turn recall, perplexity, int8 against float32"
DEFAULT_SAMPLES = 18
QUICK_SAMPLES = 16  # as many as a share must be of to be judged
AUTO = "auto"  # what a worker would choose by itself
INSTALL = "pip install 'kakeya-bench[quality]'"

T = TypeVar("T")


class CannotMeasure(Exception):
    """The bench cannot run, or not as asked; the message says why and what can be done."""


def _unique(given: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(given))


Several = Annotated[tuple[T, ...], Field(min_length=1), NoDecode, BeforeValidator(split), AfterValidator(_unique)]
Mode = Literal["auto", "gguf", "float32", "bfloat16", "int8"]
Count = Annotated[int, Field(ge=1)]


class QualitySettings(ServiceSettings):
    __doc__ = f"""Measures {SUMMARY}.

    Progress goes to standard error, a summary to standard output. Exit status: 0; 1 where a floor is not met; 2 where
    something is asked that makes no sense, or a floor cannot be judged; 130 on Ctrl-C. docs/quality.md says how to
    read the card.
    """

    model_config = RuntimeSettings.configured(command="quality")
    EXAMPLES: ClassVar = (
        "kakeya bench quality --model kakeya-nano --output card/",
        "kakeya bench quality --model kakeya-nano --quick --floor recall_inside=0.9",
    )
    GROUPS: ClassVar[Mapping[str, str]] = {
        "what is measured": "model weights kv_dtype full policies windows sinks distances text floor",
        "how": "samples quick seed threads backend",
        REPORT: "output print_json",
    }

    model: str = setting(
        help="an installed model's name, a directory, FILE.gguf, ollama:NAME[:TAG], or a Hub id", metavar="MODEL"
    )
    weights: Several[Mode] = setting(
        (AUTO, "float32", "int8"),
        "modes of the weights; the first is measured whole, the others where int8 is compared with float32; "
        f"{AUTO} is what a worker would choose",
        metavar="MODE,...",
    )
    kv_dtype: Literal["auto", "float32", "bfloat16", "int8"] = setting(
        "auto", "type of K and V in exact modes", reason="that of a worker which is told none", metavar="TYPE"
    )
    full: bool = setting(
        False,
        "measure every mode whole; and facts in the system message, and recall with fewer sinks, at every window "
        "instead of the middle one",
    )
    policies: Several[str] = setting(
        help="retention policies",
        default_factory=lambda: tuple(plugins.names(POLICIES)),
        reason="all that are installed",
        metavar="NAME,...",
    )
    windows: Several[Count] | None = setting(
        None, "windows, in tokens, beside the most sinks", reason="128,256 and as large as fits 1024", metavar="W,..."
    )
    sinks: Several[Annotated[int, Field(ge=0)]] = setting(
        (0, 4), "sinks, in tokens; S + W is the same for all of them", metavar="S,..."
    )
    distances: Several[Count] | None = setting(
        None,
        "distances of questions, in tokens",
        metavar="D,...",
        reason="two an octave and around each window's edge, to beyond twice S + W",
    )
    text: Path | None = setting(None, "text for perplexity", reason="dialogues that the bench writes", metavar="FILE")
    floor: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split)] = setting(
        (), f"exit with 1 where it is not met; may be repeated. Names: {'; '.join(floors.FLOORS)}", metavar="NAME=VALUE"
    )
    samples: Count | None = setting(
        None, "dialogues of each kind", reason=f"{DEFAULT_SAMPLES}; {QUICK_SAMPLES} with --quick"
    )
    quick: bool = setting(False, "fewer samples in one window, for CI")
    seed: int = setting(0, "of all that is drawn")
    threads: Count = setting(
        help="compute threads", default_factory=processors.usable, reason="the processors that this process may use"
    )
    backend: str = setting("torch", "verifier backend plugin", metavar="NAME")
    output: Path | None = setting(
        None, "write quality.json, card.md, report.html and the pictures there", metavar="DIR"
    )
    print_json: bool = setting(False, "print the report's document on standard output in place of the summary")

    @field_validator("weights")
    @classmethod
    def _auto_is_first(cls, weights: tuple[str, ...]) -> tuple[str, ...]:
        if AUTO in weights[1:]:
            raise ValueError(f"only the first mode can be {AUTO}")
        return weights

    @field_validator("floor")
    @classmethod
    def _floors_are_known(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for each in given:
            floors.parse(each)
        return given

    @property
    def num_samples(self) -> int:
        """Dialogues of each kind."""
        return self.samples or (QUICK_SAMPLES if self.quick else DEFAULT_SAMPLES)
