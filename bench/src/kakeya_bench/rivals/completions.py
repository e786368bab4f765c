"""POST /v1/completions for token ids: what of OpenAI's protocol a rival of our own speaks; see `Rival`."""

import json
import time
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class RequestRefused(Exception):
    """The request is none that the rival can answer; the message says why."""

    def body(self) -> bytes:
        """Of status 400."""
        return json.dumps({"error": {"code": 400, "message": str(self), "type": "invalid_request_error"}}).encode()


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _StreamOptions(_Strict):
    include_usage: bool  # an answer ends with its usage in any case


class CompletionRequest(_Strict):
    """The body, and the events of its answer. What a rival cannot do, sampling say, is refused and not ignored."""

    model: str
    prompt: list[int] = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    temperature: float = Field(ge=0.0, le=0.0)
    stream: Literal[True]
    stream_options: _StreamOptions | None = None
    ignore_eos: Literal[True]
    return_token_ids: bool = False

    @classmethod
    def read(cls, body: bytes, vocab_size: int, num_positions: int) -> "CompletionRequest":
        """Raises RequestRefused, where a token is unknown or the answer would not fit, too."""
        try:
            asked = cls.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise RequestRefused(f"{'.'.join(map(str, first['loc'])) or 'the body'}: {first['msg']}") from error
        unknown = [token_id for token_id in asked.prompt if not 0 <= token_id < vocab_size]
        if unknown:
            raise RequestRefused(f"prompt: {unknown[0]} is no token id; the vocabulary has {vocab_size}")
        num_tokens = len(asked.prompt) + asked.max_tokens
        if num_tokens > num_positions:
            raise RequestRefused(
                f"prompt and max_tokens are {num_tokens} tokens; the model has {num_positions} positions"
            )
        return asked

    def token(self, token_id: int) -> bytes:
        """The event of a token, which is sent as soon as it is generated. Ids are told as vLLM tells them."""
        ids = {"token_ids": [token_id]} if self.return_token_ids else {}
        return self._event({"text": f"<{token_id}>", "finish_reason": None, **ids})

    def end(self) -> bytes:
        """The end of the answer, with its usage."""
        usage = {
            "prompt_tokens": len(self.prompt),
            "completion_tokens": self.max_tokens,
            "total_tokens": len(self.prompt) + self.max_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        return self._event({"text": "", "finish_reason": "length"}, usage=usage) + b"data: [DONE]\n\n"

    def _event(self, choice: dict[str, Any], **more: Any) -> bytes:
        choices = [{"index": 0, "logprobs": None, **choice}]
        event = {"object": "text_completion", "created": int(time.time()), "model": self.model, "choices": choices}
        return f"data: {json.dumps({**event, **more})}\n\n".encode()
