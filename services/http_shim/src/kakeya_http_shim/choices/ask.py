"""What is wanted of a model, whichever API it was asked in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from kakeya import AsyncGeneration
from kakeya_http_shim.choices.forgetting import Watch
from kakeya_http_shim.choices.opened import Opened
from kakeya_http_shim.conversations.branches import Branches
from kakeya_http_shim.conversations.chat import Chat
from kakeya_http_shim.conversations.said import Why
from kakeya_http_shim.conversations.way import Way
from kakeya_http_shim.models.prompt import Prompt
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.generation_fields import GenerationFields
from kakeya_http_shim.text.calling import Calling

_MASK = (1 << 64) - 1
_LEAST = 2.0**-126
"""The runtime's numbers have 32 bits, in which less than this may be 0, and some of them must be above that."""


@dataclass(frozen=True)
class Live:
    """A chat, and where it was found to go on.

    Attributes:
        branches: of several answers; None: there is one.
        is_first: of several, the one whose session stays.
    """

    chat: Chat
    way: Way
    branches: Branches | None = None
    is_first: bool = True


@dataclass(frozen=True, slots=True)
class Resumed:
    """An answer that another server has begun.

    Attributes:
        generation: all of it; it has begun here.
        opened: what was told of it there.
    """

    generation: AsyncGeneration
    opened: Opened


@dataclass(frozen=True)
class Ask:
    """One answer.

    Attributes:
        sampling: what `AsyncSession.turn` takes beside the tokens.
        stop_texts: end the answer where they appear, and are not part of it.
        label: of the session, for the operator's eyes.
        stop_token_ids: end the answer, and are not part of its text.
        echoes: the prompt is part of the answer; with log-probabilities, if any are asked for.
        live: where a chat gets it in a live session; None: in one that is opened and closed for it.
        why_not_live: why a chat does not.
        calling: how it may call tools; None: it may not.
        watch: what of it may be forgotten, and is then told of; None: nothing is looked for.
        resumed: None: it begins here.
    """

    model: TextModel
    prompt: Prompt
    sampling: Mapping[str, Any]
    stop_texts: tuple[str, ...]
    on_overflow: Literal["evict", "refuse"]
    label: str
    stop_token_ids: frozenset[int] = frozenset()
    echoes: bool = False
    live: Live | None = None
    why_not_live: Why | None = None
    calling: Calling | None = None
    watch: Watch | None = None
    resumed: Resumed | None = None

    @property
    def min_tokens(self) -> int:
        """Of the answer, before anything may end it."""
        return int(self.sampling.get("min_tokens", 0))

    @property
    def asks_for_logprobs(self) -> bool:
        return self.sampling["logprobs"] is not None

    def choices(self, number: int) -> list["Ask"]:
        """The same, so many times; with a seed each gets another one, and the first the seed itself."""
        seed = self.sampling["seed"]
        if seed is None:
            return [self] * number
        seeds = [seed, *(mixed(seed, choice) for choice in range(1, number))]
        return [replace(self, sampling={**self.sampling, "seed": each}) for each in seeds]


def sampling(fields: GenerationFields, *, max_tokens: int, logprobs: int | None) -> dict[str, Any]:
    """What the runtime is asked for; temperature is 1 where none is given, as in OpenAI's API.

    What a runtime of an older version does not know is there only where it was given.

    Raises:
        ApiError: the answer would have to be longer than it may.
    """
    _check_lengths(fields, max_tokens)
    newer = {
        "repetition_penalty": _above_0(fields.repetition_penalty),
        "min_tokens": fields.min_tokens or None,
        "ignore_eos": fields.ignore_eos or None,
        "stop_token_sequences": [[token_id] for token_id in fields.stop_token_ids or ()] or None,
    }
    return {
        "max_tokens": max_tokens,
        "temperature": 1.0 if fields.temperature is None else fields.temperature,
        "top_p": _above_0(fields.top_p),
        "top_k": fields.top_k,
        "min_p": fields.min_p,
        "presence_penalty": fields.presence_penalty,
        "frequency_penalty": fields.frequency_penalty,
        "logit_bias": fields.biases,
        "seed": None if fields.seed is None else fields.seed & _MASK,
        "logprobs": logprobs,
        **{name: value for name, value in newer.items() if value is not None},
    }


def _above_0(number: float | None) -> float | None:
    return None if number is None else max(number, _LEAST)


def check(fields: GenerationFields, model: TextModel, *, num_answers: int, max_choices: int, is_held: bool) -> None:
    """Refuses before any prefill what the runtime would refuse after it.

    Args:
        is_held: a grammar holds its answers.

    Raises:
        ApiError
    """
    check_number(num_answers, max_choices)
    check_tokens(fields.biases or (), model, "logit_bias")
    check_tokens(fields.stop_token_ids or (), model, "stop_token_ids")
    if fields.ignore_eos and is_held:
        message = "ignore_eos: under a grammar an answer ends where that does"
        raise ApiError(400, message, param="ignore_eos", code="invalid_value")


def _check_lengths(fields: GenerationFields, max_tokens: int) -> None:
    if (fields.min_tokens or 0) > max_tokens:
        message = f"min_tokens: more than the {max_tokens:,} tokens that the answer may have"
        raise ApiError(400, message, param="min_tokens", code="invalid_value")


def check_number(num_answers: int, max_choices: int) -> None:
    """Raises ApiError where a request asks for too many answers."""
    if num_answers > max_choices:
        raise ApiError(400, f"n: at most {max_choices} answers are given at once", param="n", code="invalid_value")


def check_tokens(token_ids: Iterable[int], model: TextModel, field: str) -> None:
    """Raises ApiError where the model does not know one of them."""
    largest = max(token_ids, default=0)
    if largest >= model.served.vocab_size:
        raise ApiError(400, f"{field}: the model knows no token {largest}", param=field, code="invalid_value")


def mixed(seed: int, choice: int) -> int:
    """A seed for choice `choice` that has nothing in common with its neighbours' (SplitMix64: Steele et al. 2014)."""
    mix = (seed + choice * 0x9E3779B97F4A7C15) & _MASK
    mix = ((mix ^ (mix >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mix = ((mix ^ (mix >> 27)) * 0x94D049BB133111EB) & _MASK
    return mix ^ (mix >> 31)
