"""Which features a request needs of its worker: an older one would answer as if some of its fields were not there."""

from kakeya_router.store.session_record import Features
from kakeya_shared.contract.features import APPEND_LOGPROBS, MASKED_ENDS, REPETITION_PENALTY
from kakeya_stubs.v1 import runtime_pb2 as api


def of_append(message: api.AppendTokensRequest) -> Features:
    return frozenset({APPEND_LOGPROBS} if message.HasField("logprobs") else ())


def of_generate(message: api.GenerateRequest) -> Features:
    """A field that is given and changes nothing, such as a repetition penalty of 1, needs none."""
    is_penalized = message.HasField("repetition_penalty") and message.repetition_penalty != 1
    needed = {
        REPETITION_PENALTY: is_penalized,
        MASKED_ENDS: message.min_tokens > 0 or message.ignore_eos,
    }
    return frozenset(feature for feature, is_needed in needed.items() if is_needed)
