"""Settings of `kakeya plan` and of the verbs of `kakeya models`: variables KAKEYA_PLAN_* and KAKEYA_MODELS_*."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import model_validator
from pydantic_settings import CliPositionalArg, SettingsConfigDict

from kakeya_shared.settings.service import Names, ServiceSettings, setting
from kakeya_shared.settings.typed_flags import MayBePath, is_here


def _configured(command: str, verb: str = "") -> SettingsConfigDict:
    """`--json` for a setting that cannot have the name."""
    configured = ServiceSettings.configured(command=command) | {"cli_shortcuts": {"print-json": "json"}}
    return configured | {"cli_prog_name": f"kakeya {command} {verb}".strip()}


class OutputSettings(ServiceSettings):
    """What all of them can be told."""

    GROUPS: ClassVar[Mapping[str, str]] = {"the output": "print_json"}
    print_json: bool = setting(False, "print one JSON document, for programs", reason="lines for people")


class OneModelSettings(OutputSettings):
    """What of them is about one model."""

    model: CliPositionalArg[str] = setting("", "as `kakeya worker --model` takes it", metavar="MODEL")

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if not self.model:
            raise ValueError("say which MODEL")
        return self


class PlanSettings(OutputSettings):
    """Says what many sessions take: lanes, workers, Redis, the snapshot store.

    Of a model of the hub that is not here, config.json alone is downloaded. Weights are counted as a worker on this
    host would hold them; variables of a worker (KAKEYA_WORKER_BACKEND, _WEIGHTS, _KV_DTYPE) count. How many sessions
    can decode at once is a question of processors, not of bytes. Formulas and what they were measured on:
    ops/scaling.md.

    Exit status: 0, or 1 where the model cannot run here, or no lane of it fits.
    """

    model_config = _configured("plan")

    GROUPS: ClassVar[Mapping[str, str]] = {
        "the model": "model draft_model",
        "the sessions": "sessions at_once tokens turn_tokens",
        "the workers": "sink window worker_bytes store",
    }
    EXAMPLES: ClassVar[Sequence[str]] = (
        "kakeya plan --model Qwen/Qwen3-0.6B --sessions 10000 --at-once 200 --window 4096 --worker-bytes 32000000000",
        "kakeya plan --model Qwen/Qwen3-8B --draft-model Qwen/Qwen3-0.6B --sessions 100",
    )

    model: Annotated[str, MayBePath(is_here)] = setting(help="as `kakeya worker --model` takes it", metavar="MODEL")
    draft_model: Annotated[str, MayBePath(is_here)] = setting(
        "", "as `kakeya worker --draft-model` takes it: each lane has one of it beside", reason="none", metavar="MODEL"
    )
    sessions: int = setting(help="all that there are, idle ones with them", unit="sessions", metavar="N", ge=1)
    at_once: int | None = setting(
        None, "of them, that hold a lane at the same time", unit="sessions", reason="all", metavar="N", ge=1
    )
    tokens: int | None = setting(
        None, "of a session's history", unit="tokens", reason="as many as a lane keeps", metavar="N", ge=1
    )
    turn_tokens: int = setting(
        500, "of a session's last turn", unit="tokens", reason="a question and its answer", metavar="N", ge=1
    )
    sink: int | None = setting(None, "sinks of a lane", unit="tokens", reason="as of a worker", ge=0)
    window: int | None = setting(
        None, "window of a lane", unit="tokens", reason="as of a worker that is told nothing", ge=1
    )
    worker_bytes: int | None = setting(
        None, "memory of a worker for weights and lanes", unit="bytes", reason="four fifths of this host's", ge=1
    )
    store: bool = setting(
        True, "workers have a snapshot store, so that idle sessions need no lane", reason="they have, as in our stacks"
    )

    @model_validator(mode="after")
    def _holds_lanes(self) -> Self:
        if self.num_at_once > self.sessions:
            raise ValueError("--at-once is more than --sessions")
        if self.num_at_once < self.sessions and not self.store:
            raise ValueError("without a store idle sessions keep their lanes: --at-once needs --store")
        return self

    @property
    def num_at_once(self) -> int:
        return self.sessions if self.at_once is None else self.at_once


class PullSettings(OneModelSettings):
    """Downloads what is missing of a model and checks all of it.

    Models come from the Hugging Face Hub into its cache ($HF_HOME, else ~/.cache/huggingface), where workers find them.
    A pull prints the directory. $HF_ENDPOINT names another hub, $HF_TOKEN a token, and HF_HUB_OFFLINE=1 asks none. A
    download that was broken off goes on where it was. Every file's digest is checked.

    Exit status: 0, or 1 where the model is not here as a whole.
    """

    model_config = _configured("models", "pull")

    GROUPS: ClassVar[Mapping[str, str]] = {"the model": "model revision"}
    EXAMPLES: ClassVar[Sequence[str]] = ("kakeya models pull Qwen/Qwen3-0.6B",)

    model: CliPositionalArg[str] = setting("", "of the hub, such as Qwen/Qwen3-0.6B", metavar="MODEL")
    revision: str | None = setting(None, "a branch, a tag or a commit", reason="main", metavar="NAME")


class ListSettings(OutputSettings):
    """Lists the models on this host: what each would take here, and what is kept of them.

    They are installed, in the hub's cache ($HF_HOME), in Ollama's store ($OLLAMA_MODELS, else ~/.ollama/models), or
    GGUF files below folders that are named. Variables of a worker (KAKEYA_WORKER_BACKEND, _WEIGHTS, _KV_DTYPE) count.

    Exit status: 0, or 1 where they cannot be listed.
    """

    model_config = _configured("models", "list")

    GROUPS: ClassVar[Mapping[str, str]] = {"the models": "folder draft_model"}
    EXAMPLES: ClassVar[Sequence[str]] = ("kakeya models list --folder ~/models",)

    folder: Names = setting((), "look for GGUF files below it, too; may be repeated", unit="directory", reason="none")
    draft_model: Annotated[str, MayBePath(is_here)] = setting(
        "", "as `kakeya worker --draft-model` takes it: each lane has one of it beside", reason="none", metavar="MODEL"
    )


class CheckSettings(OneModelSettings):
    """Compares a model, as it runs here, with float32. That takes four bytes a weight.

    Variables of a worker (KAKEYA_WORKER_*) count.

    Exit status: 0, 1 where it loses more than --max-kl, 3 where it cannot be checked.
    """

    model_config = _configured("models", "check")

    GROUPS: ClassVar[Mapping[str, str]] = {"the model": "model weights", "the comparison": "text_file tokens max_kl"}
    EXAMPLES: ClassVar[Sequence[str]] = ("kakeya models check ollama:smollm2:135m",)

    text_file: Path | None = setting(None, "a text in UTF-8", unit="file", reason="one that is shipped")
    tokens: int = setting(512, "of the text, at most", unit="tokens", reason="most contexts hold them", ge=2)
    weights: str | None = setting(None, "as of a worker", reason="$KAKEYA_WORKER_WEIGHTS, else auto", metavar="TYPE")
    max_kl: float = setting(
        0.02, "the mean that is still good", unit="nats", reason="ten times what int8 loses on a model of 135 M"
    )
