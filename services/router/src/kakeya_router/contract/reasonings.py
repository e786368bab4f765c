"""How a model thinks before it answers, as a Generate says it."""

from dataclasses import asdict, dataclass
from typing import Self

from kakeya_router.contract.validation import check_vocabulary, invalid
from kakeya_shared.contract.generation_limits import MAX_REASONING_MARK_TOKENS
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api


@dataclass(frozen=True, slots=True)
class Reasoning:
    """See `kakeya.v1.Reasoning`."""

    end_token_ids: tuple[int, ...]
    max_tokens: int
    begin_token_ids: tuple[int, ...]

    @classmethod
    def of(cls, message: api.Reasoning) -> Self:
        """Raises InvalidField."""
        for name, token_ids, least in (("end", message.end_token_ids, 1), ("begin", message.begin_token_ids, 0)):
            if not least <= len(token_ids) <= MAX_REASONING_MARK_TOKENS:
                why = f"must have {least} to {MAX_REASONING_MARK_TOKENS} tokens"
                raise invalid(f"reasoning.{name}_token_ids", why)
        return cls(tuple(message.end_token_ids), message.max_tokens, tuple(message.begin_token_ids))

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises TokenOutOfVocabulary."""
        check_vocabulary("reasoning", (*self.end_token_ids, *self.begin_token_ids), vocab_size)

    @property
    def message(self) -> worker_api.Reasoning:
        """For the worker."""
        return worker_api.Reasoning(**asdict(self))
