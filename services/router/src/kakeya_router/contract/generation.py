"""A Generate in the words of the public contract and of the worker's: each function turns one into the other."""

import secrets
from collections.abc import Sequence
from typing import Any

from kakeya_router.store.records import SessionRecord
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api

_STOP_REASONS = {
    worker_api.FINISH_REASON_MAX_TOKENS: api.STOP_REASON_MAX_TOKENS,
    worker_api.FINISH_REASON_EOS: api.STOP_REASON_EOS,
    worker_api.FINISH_REASON_STOP_SEQUENCE: api.STOP_REASON_STOP_SEQUENCE,
    worker_api.FINISH_REASON_TRUNCATED: api.STOP_REASON_TRUNCATED,
}


def sampling(request: api.GenerateRequest) -> worker_api.Sampling:
    """How to choose tokens; draws a seed where none is given."""
    return worker_api.Sampling(
        seed=request.seed if request.HasField("seed") else secrets.randbits(63),
        temperature=request.temperature,
        top_p=request.top_p if request.HasField("top_p") else 1.0,
        top_k=request.top_k,
        min_p=request.min_p,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        logit_bias=request.logit_bias,
    )


def intent(request: api.GenerateRequest, sampling: worker_api.Sampling) -> Intent:
    """All that a router needs to go on with the operation from any token."""
    parameters: dict[str, Any] = {
        "max_tokens": request.max_tokens,
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logit_bias": dict(sampling.logit_bias),
        "logprobs": _logprobs(request),
        "stop_token_sequences": [list(sequence.token_ids) for sequence in request.stop_token_sequences],
    }
    return Intent(
        "generate", parameters, seed=sampling.seed, op_id=request.op_id, may_begin=not request.resume_token_ids
    )


def worker_request(
    record: SessionRecord,
    request: api.GenerateRequest,
    sampling: worker_api.Sampling,
    max_tokens: int,
    produced: Sequence[int],
) -> worker_api.GenerateRequest:
    """`max_tokens` as far as the history has room for it; `produced` are the operation's tokens so far."""
    return worker_api.GenerateRequest(
        session_id=record.session_id,
        epoch=record.epoch,
        history_length=record.history_length,
        max_tokens=max_tokens,
        eos_token_ids=record.eos_token_ids,
        sampling=sampling,
        stop_token_sequences=[
            worker_api.TokenSequence(token_ids=sequence.token_ids) for sequence in request.stop_token_sequences
        ],
        logprobs=_logprobs(request),
        previous_token_ids=produced,
        operation_number=record.operation_number,
        history_digest=record.digest_at(record.history_length),
    )


def retained(record: SessionRecord) -> list[api.TokenRange]:
    return [api.TokenRange(start=part.start, end=part.stop) for part in record.retained_ranges]


def kept(lane: worker_api.LaneState) -> list[api.TokenRange]:
    return [api.TokenRange(start=part.start, end=part.end) for part in lane.retained]


def truncated(record: SessionRecord, *, is_under_way: bool) -> api.GenerateResponse | None:
    """What was forgotten when the operation began; `is_under_way`: its lane has taken in more since."""
    num_dropped = record.num_dropped_at_start if is_under_way else record.num_dropped_tokens
    if not num_dropped:
        return None
    ranges = _retained_at_start(record) if is_under_way else retained(record)
    return api.GenerateResponse(truncated=api.HistoryTruncated(dropped_token_count=num_dropped, retained=ranges))


def _retained_at_start(record: SessionRecord) -> list[api.TokenRange]:
    """What was kept when the operation began, of a history that had outgrown its lane by then."""
    start = record.operation_start
    window = api.TokenRange(start=start - record.window, end=start)
    return [api.TokenRange(end=record.sink), window] if record.sink else [window]


def token(response: worker_api.GenerateResponse) -> api.GenerateResponse:
    detail = response.detail if response.HasField("detail") else None
    return api.GenerateResponse(token_id=response.token_id, detail=detail and _detail(detail))


def done(done: worker_api.GenerateDone, op_id: str, seed: int, *, capped: bool) -> api.GenerateResponse:
    """`capped`: the worker was asked for fewer tokens than the client asks for."""
    return api.GenerateResponse(
        done=api.GenerateDone(
            stop_reason=_stop_reason(done.finish_reason, capped=capped),
            generated_token_count=done.generated_token_count,
            prefill_duration_seconds=done.prefill_duration_seconds,
            total_duration_seconds=done.total_duration_seconds,
            seed=seed,
            op_id=op_id,
            evicted_token_count=done.evicted_token_count,
            history_length=done.lane.history_length,
            kv_live_bytes=done.lane.kv_live_bytes,
            retained=kept(done.lane),
        )
    )


def _stop_reason(finish_reason: worker_api.FinishReason.ValueType, *, capped: bool) -> api.StopReason.ValueType:
    if capped and finish_reason == worker_api.FINISH_REASON_MAX_TOKENS:
        return api.STOP_REASON_TRUNCATED
    return _STOP_REASONS.get(finish_reason, api.STOP_REASON_UNSPECIFIED)


def _logprobs(request: api.GenerateRequest) -> int | None:
    return request.logprobs if request.HasField("logprobs") else None


def _detail(detail: worker_api.TokenDetail) -> api.TokenDetail:
    top_logprobs = [api.TokenLogprob(token_id=top.token_id, logprob=top.logprob) for top in detail.top_logprobs]
    return api.TokenDetail(logprob=detail.logprob, top_logprobs=top_logprobs)
