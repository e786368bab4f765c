"""Operations as messages of `kakeya.v1`."""

from typing import assert_never

from kakeya_router.operations.generate import Ended, Truncated
from kakeya_router.store.session_record import parse_ranges
from kakeya_router.workers.answers import Appended, Finish, Token, TokenDetail
from kakeya_stubs.v1 import runtime_pb2 as api

_STOP_REASONS = {
    Finish.UNKNOWN: api.STOP_REASON_UNSPECIFIED,
    Finish.MAX_TOKENS: api.STOP_REASON_MAX_TOKENS,
    Finish.EOS: api.STOP_REASON_EOS,
    Finish.STOP_SEQUENCE: api.STOP_REASON_STOP_SEQUENCE,
    Finish.TRUNCATED: api.STOP_REASON_TRUNCATED,
}


def retained(text: str) -> list[api.TokenRange]:
    """As a lane and a session record have it."""
    return [api.TokenRange(start=part.start, end=part.stop) for part in parse_ranges(text)]


def appended(answer: Appended) -> api.AppendTokensResponse:
    return api.AppendTokensResponse(
        history_length=answer.lane.history_length,
        kv_live_bytes=answer.lane.kv_live_bytes,
        prefill_duration_seconds=answer.prefill_duration_seconds,
        evicted_token_count=answer.evicted_token_count,
        retained=retained(answer.lane.retained),
    )


def generated(event: Truncated | Token | Ended) -> api.GenerateResponse:
    match event:
        case Token():
            return api.GenerateResponse(token_id=event.token_id, detail=_detail(event.detail))
        case Truncated():
            truncated = api.HistoryTruncated(
                dropped_token_count=event.dropped_token_count, retained=retained(event.retained)
            )
            return api.GenerateResponse(truncated=truncated)
        case Ended():
            return api.GenerateResponse(done=_done(event))
        case never:
            assert_never(never)


def _done(ended: Ended) -> api.GenerateDone:
    done = ended.done
    finish = Finish.TRUNCATED if ended.is_capped and done.finish is Finish.MAX_TOKENS else done.finish
    return api.GenerateDone(
        stop_reason=_STOP_REASONS[finish],
        generated_token_count=done.generated_token_count,
        prefill_duration_seconds=done.prefill_duration_seconds,
        total_duration_seconds=done.total_duration_seconds,
        seed=ended.seed,
        op_id=ended.op_id,
        evicted_token_count=done.evicted_token_count,
        history_length=done.lane.history_length,
        kv_live_bytes=done.lane.kv_live_bytes,
        retained=retained(done.lane.retained),
    )


def _detail(detail: TokenDetail | None) -> api.TokenDetail | None:
    if detail is None:
        return None
    top_logprobs = [api.TokenLogprob(token_id=token_id, logprob=logprob) for token_id, logprob in detail.top_logprobs]
    return api.TokenDetail(logprob=detail.logprob, top_logprobs=top_logprobs)
