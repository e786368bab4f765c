"""What `kakeya worker` can be told of its steps."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import model_validator

from kakeya_shared.process import processors
from kakeya_shared.settings.service import RpcServerSettings, setting
from kakeya_shared.settings.typed_flags import MayBePath, is_here
from kakeya_worker.engine.speculation.names import DRAFT_MODEL, NONE


class StepSettings(RpcServerSettings):
    """How large they are, how long they take, and what is drafted for them."""

    GROUPS: ClassVar[Mapping[str, str]] = {
        "steps": "chunk_tokens step_tokens step_milliseconds speculation draft_model threads",
    }
    chunk_tokens: int = setting(
        32, "most tokens a session brings to a step", unit="tokens", reason="small slack, short steps", ge=1, le=4096
    )
    step_tokens: int = setting(
        128, "most tokens of a forward pass", unit="tokens", reason="four chunks: others wait briefly", ge=2
    )
    step_milliseconds: float | None = setting(
        None,
        "how long a step may take in which sessions generate beside prefills: these are cut short, to a fifth of the "
        "step at the least",
        unit="milliseconds",
        reason="twice what those who generate take alone, so that each kind has half of the time",
        gt=0,
    )
    speculation: str = setting(
        NONE,
        "proposer plugin that drafts tokens, which a step then checks several at once: ngram drafts what followed the "
        "session's last tokens before, draft-model what --draft-model would say. No token is another one for that, and "
        "a step has as many drafts as pay",
        reason="what repeats nothing loses nearly 2 %, and ngram takes 1 MiB a session beside its lane",
        metavar="NAME",
    )
    draft_model: Annotated[str, MayBePath(is_here)] = setting(
        "",
        "a smaller model with the same tokenizer, named as --model is, that drafts for sessions which ask for "
        "draft-model. Each lane has one in its slab, too, which --slab-bytes counts",
        reason="none, and nobody can ask for it",
        metavar="MODEL",
    )
    threads: int = setting(
        processors.usable(),
        "compute threads",
        unit="threads",
        reason="the processors this process may use, by affinity and quota",
        ge=1,
    )

    @model_validator(mode="after")
    def _has_a_draft_model(self) -> Self:
        if self.speculation == DRAFT_MODEL and not self.draft_model:
            raise ValueError("--speculation draft-model needs --draft-model")
        return self

    @property
    def step_seconds(self) -> float | None:
        """`step_milliseconds` in seconds."""
        return None if self.step_milliseconds is None else self.step_milliseconds / 1e3
