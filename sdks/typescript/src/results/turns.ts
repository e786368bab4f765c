/** What appends, rewinds and generations answer, and what the model can see of a history then. */

import * as wire from "../_generated/kakeya/v1/runtime_pb.js";
import { number64 } from "./number64.js";

/** Tokens start..end-1 of a history. */
export interface TokenRange {
  readonly start: number;
  readonly end: number;
}

/** What the model can see of a session's history; every result that describes a session has it. */
export interface Sight {
  /** Tokens of the session so far. */
  readonly historyLength: number;
  /** Bytes of KV that the verifier really holds for the session now. */
  readonly kvLiveBytes: number;
  /** What is kept of the history, as indices into it, ascending. */
  readonly retained: readonly TokenRange[];
  /**
   * Tokens of the history that the model cannot see any more; 0: it sees all of it.
   *
   * null: the session is parked and nothing is held of it now, or the router, an older one, did not say what is.
   */
  readonly numForgottenTokens: number | null;
}

/** Why a generation ended. One that this version does not know is "unspecified". */
export type StopReason = "unspecified" | "max_tokens" | "eos" | "cancelled" | "truncated" | "stop_sequence";

/** A token id with the log-probability that it had. */
export interface TokenLogprob {
  readonly tokenId: number;
  readonly logprob: number;
}

/**
 * How likely a token was.
 *
 * Log-probabilities are natural logarithms, of the raw logits' softmax: before bias, penalties and temperature.
 */
export interface TokenDetail {
  readonly tokenId: number;
  /**
   * Its log-probability. null: nobody knows it any more, as it was on its way when a connection broke or a router died;
   * the token itself was found again.
   */
  readonly logprob: number | null;
  /** Those of the likeliest ids, descending; as many as were asked for, none beside null. */
  readonly topLogprobs: readonly TokenLogprob[];
}

/** After an append. */
export interface AppendResult extends Sight {
  /** Time that the forward passes over the new tokens took. */
  readonly prefillSeconds: number;
  /** Tokens that left the window because of this append. */
  readonly numEvictedTokens: number;
  /**
   * Where `logprobs` asked for them, of each token; the first of a history has none, since nothing precedes it. Empty
   * where the connection broke and the tokens were there already: they are computed once.
   */
  readonly details: readonly TokenDetail[];
}

/** After a rewind. */
export type RewindResult = Sight;

/** What the model cannot see any more at the start of a generation. */
export interface Truncation {
  /** Tokens of the history that it does not see. */
  readonly numDroppedTokens: number;
  /** What it sees, as indices into the history, ascending. */
  readonly retained: readonly TokenRange[];
}

/** At the end of a generation. As JSON its seed is a text of decimal digits. */
export interface GenerateResult extends Sight {
  /** Why it ended. */
  readonly stopReason: StopReason;
  /** Tokens that were generated, the EOS token included. */
  readonly numTokens: number;
  /** Prefill time of this turn's appends. */
  readonly prefillSeconds: number;
  /** Time the whole generation took on the server. */
  readonly totalSeconds: number;
  /** The seed that was used, given or drawn; the same seed gives the same tokens again. */
  readonly seed: bigint;
  /** Names the operation in the runtime's logs and traces. */
  readonly opId: string;
  /** Tokens that left the window because of this generation. */
  readonly numEvictedTokens: number;
  /** Drafts of the session's proposer that were checked. */
  readonly numDraftedTokens: number;
  /** Those that were right: tokens of the generation without a step of their own. */
  readonly numAcceptedTokens: number;
}

const STOP_REASONS: Readonly<Record<wire.StopReason, StopReason>> = {
  [wire.StopReason.UNSPECIFIED]: "unspecified",
  [wire.StopReason.MAX_TOKENS]: "max_tokens",
  [wire.StopReason.EOS]: "eos",
  [wire.StopReason.CANCELLED]: "cancelled",
  [wire.StopReason.TRUNCATED]: "truncated",
  [wire.StopReason.STOP_SEQUENCE]: "stop_sequence",
};

/** Of a message that describes a session. */
export function sight(message: {
  historyLength: bigint;
  kvLiveBytes: bigint;
  retained: readonly wire.TokenRange[];
}): Sight {
  const historyLength = number64(message.historyLength);
  const retained = ranges(message.retained);
  const numSeen = retained.reduce((sum, { start, end }) => sum + end - start, 0);
  const isKnown = historyLength === 0 || retained.length > 0;
  return {
    historyLength,
    kvLiveBytes: number64(message.kvLiveBytes),
    retained,
    numForgottenTokens: isKnown ? historyLength - numSeen : null,
  };
}

export function ranges(retained: readonly { start: bigint; end: bigint }[]): TokenRange[] {
  return retained.map(({ start, end }) => ({ start: number64(start), end: number64(end) }));
}

/** What the runtime says of a token; nothing where it was found again. */
export function tokenDetail(tokenId: number, detail: wire.TokenDetail | undefined): TokenDetail {
  const topLogprobs = (detail?.topLogprobs ?? []).map(({ tokenId, logprob }) => ({ tokenId, logprob }));
  return { tokenId, logprob: detail?.logprob ?? null, topLogprobs };
}

/** The answer to an append of these tokens. */
export function appendResult(response: wire.AppendTokensResponse, tokenIds: readonly number[] = []): AppendResult {
  const first = tokenIds.length - response.logprobs.length;
  return {
    ...sight(response),
    prefillSeconds: response.prefillDurationSeconds,
    numEvictedTokens: number64(response.evictedTokenCount),
    details: response.logprobs.map((detail, index) => tokenDetail(tokenIds[first + index] ?? 0, detail)),
  };
}

export function truncation(truncated: wire.HistoryTruncated): Truncation {
  return { numDroppedTokens: number64(truncated.droppedTokenCount), retained: ranges(truncated.retained) };
}

export function generateResult(done: wire.GenerateDone): GenerateResult {
  const result = {
    ...sight(done),
    stopReason: (STOP_REASONS as Partial<typeof STOP_REASONS>)[done.stopReason] ?? "unspecified",
    numTokens: done.generatedTokenCount,
    prefillSeconds: done.prefillDurationSeconds,
    totalSeconds: done.totalDurationSeconds,
    seed: done.seed,
    opId: done.opId,
    numEvictedTokens: number64(done.evictedTokenCount),
    numDraftedTokens: done.draftedTokenCount,
    numAcceptedTokens: done.acceptedTokenCount,
  };
  // Not one of its fields: JSON knows no bigint, and a number would not be exact.
  return Object.defineProperty(result, "toJSON", { value: () => ({ ...result, seed: String(result.seed) }) });
}
