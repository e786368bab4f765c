"""The options of a request of Ollama's API."""

from typing import Annotated, Final

from pydantic import Field

from kakeya_http_shim.requests.fields import INTEGRAL, RequestModel, honoured, without_effect
from kakeya_http_shim.requests.generation_fields import MAX_STOPS, MAX_TOKEN_ID, STOPS, StopText
from kakeya_shared.contract.generation_limits import MAX_PENALTY, MAX_REPETITION_PENALTY

_DEFAULT_TEMPERATURE: Final = 0.8
_DEFAULT_TOP_K: Final = 40
_DEFAULT_TOP_P: Final = 0.9

_AT_START = "a matter of the worker's start"
_ONE_SAMPLER = "not one of the samplers; Ollama itself has dropped it, or has it off by default"
Integer = Annotated[int, INTEGRAL]


class OllamaOptions(RequestModel):
    """How the next token is chosen, and when the answer ends."""

    temperature: float | None = honoured(None, f"0 to 2, {_DEFAULT_TEMPERATURE} by default as in Ollama", ge=0, le=2)
    top_k: Annotated[int, Field(ge=0, le=MAX_TOKEN_ID), INTEGRAL] | None = honoured(
        None, f"{_DEFAULT_TOP_K} by default as in Ollama; 0: no limit"
    )
    top_p: float | None = honoured(None, f"above 0, up to 1, {_DEFAULT_TOP_P} by default as in Ollama", gt=0, le=1)
    min_p: float | None = honoured(None, "0 to 1, no limit by default", ge=0, le=1)
    repeat_penalty: float | None = honoured(
        None,
        "above 0, up to 2, 1 by default: what the answer has said already is counted",
        gt=0,
        le=MAX_REPETITION_PENALTY,
    )
    presence_penalty: float | None = honoured(None, "-2 to 2, 0 by default", ge=-MAX_PENALTY, le=MAX_PENALTY)
    frequency_penalty: float | None = honoured(None, "-2 to 2, 0 by default", ge=-MAX_PENALTY, le=MAX_PENALTY)
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63), INTEGRAL] | None = honoured(
        None, "equal requests with equal seeds get equal answers; below 0: one that is drawn"
    )
    num_predict: Annotated[int, Field(ge=-(1 << 31), lt=1 << 31), INTEGRAL] | None = honoured(
        None, "tokens of the answer, thoughts included; 0 and below: the server's --default-max-tokens"
    )
    stop: Annotated[list[StopText], Field(max_length=MAX_STOPS, fail_fast=True)] | None = honoured(None, STOPS)

    num_ctx: Integer | None = without_effect(
        "a conversation may be of any length, and the worker's window says how much of it is seen; `/api/ps` tells it"
    )
    num_keep: Integer | None = without_effect("the system messages and tools are kept for ever")
    repeat_last_n: Integer | None = without_effect("repeat_penalty counts the whole answer")
    num_batch: Integer | None = without_effect(_AT_START)
    num_gpu: Integer | None = without_effect(_AT_START)
    main_gpu: Integer | None = without_effect(_AT_START)
    num_thread: Integer | None = without_effect(_AT_START)
    draft_num_predict: Integer | None = without_effect("nothing is drafted")
    numa: bool | None = without_effect(_AT_START)
    low_vram: bool | None = without_effect(_AT_START)
    f16_kv: bool | None = without_effect(_AT_START)
    use_mmap: bool | None = without_effect(_AT_START)
    use_mlock: bool | None = without_effect(_AT_START)
    vocab_only: bool | None = without_effect(_AT_START)
    embedding_only: bool | None = without_effect(_AT_START)
    logits_all: bool | None = without_effect("logprobs is served")
    penalize_newline: bool | None = without_effect("a line feed is a token like any other")
    tfs_z: float | None = without_effect(_ONE_SAMPLER)
    typical_p: float | None = without_effect(_ONE_SAMPLER)
    mirostat: Integer | None = without_effect(_ONE_SAMPLER)
    mirostat_tau: float | None = without_effect(_ONE_SAMPLER)
    mirostat_eta: float | None = without_effect(_ONE_SAMPLER)

    @property
    def sampling(self) -> dict[str, object]:
        """As fields of a chat; None of what is not given."""
        return {
            "temperature": _DEFAULT_TEMPERATURE if self.temperature is None else self.temperature,
            "top_k": _DEFAULT_TOP_K if self.top_k is None else self.top_k,
            "top_p": _DEFAULT_TOP_P if self.top_p is None else self.top_p,
            "min_p": self.min_p,
            "repetition_penalty": self.repeat_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "seed": None if self.seed is None or self.seed < 0 else self.seed,
            "max_tokens": self.num_predict if self.num_predict and self.num_predict > 0 else None,
            "stop": self.stop or None,
        }
