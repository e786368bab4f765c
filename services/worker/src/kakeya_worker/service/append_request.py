"""An AppendRequest as the engine takes it; what it must not hold is refused here."""

from kakeya_shared.contract.generation_limits import MAX_APPEND_LOGPROBS, MAX_LOGPROBS
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_worker.engine.lanes.operation import Append
from kakeya_worker.service.generate_request import check_vocabulary, require


def operation(request: pb.AppendRequest, vocab_size: int) -> Append:
    """Raises InvalidField or TokenOutOfVocabulary."""
    check_vocabulary(request.token_ids, vocab_size)
    num_top_logprobs = request.logprobs if request.HasField("logprobs") else None
    if num_top_logprobs is not None:
        require(num_top_logprobs <= MAX_LOGPROBS, "logprobs", f"must be at most {MAX_LOGPROBS}")
        num_logprobs = len(request.token_ids) * (1 + num_top_logprobs)
        require(
            num_logprobs <= MAX_APPEND_LOGPROBS, "logprobs", f"{num_logprobs} in all; at most {MAX_APPEND_LOGPROBS}"
        )
    return Append(
        request.session_id,
        request.epoch,
        request.history_length,
        tuple(request.token_ids),
        num_top_logprobs,
        number=request.operation_number,
        history_digest=request.history_digest if request.HasField("history_digest") else None,
    )
