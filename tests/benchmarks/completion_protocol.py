"""POST /v1/completions for token ids: what of OpenAI's protocol a rival of our own speaks; see `Rival`."""

import json
import time
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MEDIA_TYPE = "text/event-stream"
DONE = b"data: [DONE]\n\n"


class RequestRefused(Exception):
    """The request is none that the rival can answer; the message says why."""


class StreamOptions(BaseModel):
    """An answer ends with its usage in any case."""

    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool


class CompletionRequest(BaseModel):
    """The body. What a rival cannot do, sampling say, is refused and not ignored."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str
    prompt: list[int] = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    temperature: float = Field(ge=0.0, le=0.0)
    stream: Literal[True]
    stream_options: StreamOptions | None = None
    ignore_eos: Literal[True]
    return_token_ids: bool = False

    @classmethod
    def read(cls, body: bytes) -> "CompletionRequest":
        """Raises RequestRefused."""
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or "the body"
            raise RequestRefused(f"{field}: {first['msg']}") from error

    def check(self, vocab_size: int, num_positions: int) -> None:
        """Raises RequestRefused where a token is unknown, or the answer would not fit."""
        unknown = next((token_id for token_id in self.prompt if not 0 <= token_id < vocab_size), None)
        if unknown is not None:
            raise RequestRefused(f"prompt: {unknown} is no token id; the vocabulary has {vocab_size}")
        num_tokens = len(self.prompt) + self.max_tokens
        if num_tokens > num_positions:
            raise RequestRefused(
                f"prompt and max_tokens are {num_tokens} tokens; the model has {num_positions} positions"
            )


@dataclass(frozen=True)
class CompletionEvents:
    """The events of an answer, as server-sent events. Ids are told as vLLM tells them."""

    request: CompletionRequest

    def token(self, token_id: int) -> bytes:
        """One as soon as it is generated."""
        choice = {"text": f"<{token_id}>", "index": 0, "logprobs": None, "finish_reason": None}
        if self.request.return_token_ids:
            choice["token_ids"] = [token_id]
        return self._event(choice)

    def end(self, num_tokens: int) -> bytes:
        """The end of an answer of so many tokens, with its usage; DONE follows."""
        num_prompt_tokens = len(self.request.prompt)
        usage = {
            "prompt_tokens": num_prompt_tokens,
            "completion_tokens": num_tokens,
            "total_tokens": num_prompt_tokens + num_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        return self._event({"text": "", "index": 0, "logprobs": None, "finish_reason": "length"}, usage=usage)

    def _event(self, choice: dict[str, Any], **more: Any) -> bytes:
        event = {
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.request.model,
            "choices": [choice],
            **more,
        }
        return f"data: {json.dumps(event)}\n\n".encode()


def refusal(error: RequestRefused) -> dict[str, Any]:
    """The body of status 400."""
    return {"error": {"code": 400, "message": str(error), "type": "invalid_request_error"}}
