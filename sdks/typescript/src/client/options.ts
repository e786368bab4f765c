/** What calls, sessions and generations may be told by name. Undefined is as left out. */

import type { ChannelCredentials } from "@grpc/grpc-js";

import type { Grammar, Reasoning } from "../grammar.js";
import type { OverflowPolicy } from "../results/sessions.js";
import type { TokenIds } from "../transport/fields.js";
import type { Session } from "./session.js";

/** Of a client. */
export interface ClientOptions {
  /**
   * Sent with every call, where the runtime asks for keys; left out: `apiKeyFile`, else $KAKEYA_API_KEY. "" is none. Only
   * `credentials` keep it from being read on the way.
   */
  readonly apiKey?: string | undefined;
  /** A file with the key, which is read once. */
  readonly apiKeyFile?: string | undefined;
  /** Of a TLS connection (`tlsCredentials`); left out for plaintext. */
  readonly credentials?: ChannelCredentials | undefined;
  /**
   * Of calls whose work does not depend on the number of tokens, retries included; Infinity for no limit. The default, 60,
   * outlasts a restart of the router, and the 30 s that a new session waits for a lane unless the router was told
   * another time.
   */
  readonly timeoutSeconds?: number | undefined;
  /**
   * Of each append and generation. The default is no limit: their time is proportional to their tokens and to the speed
   * of the host, and keepalive notices a server that is gone.
   */
  readonly operationTimeoutSeconds?: number | undefined;
  /** How often a call that is safe to repeat may meet UNAVAILABLE before it fails; the default is 5. */
  readonly maxAttempts?: number | undefined;
  /**
   * Operations state the history length they expect. False: a second writer goes unnoticed, and an append is not repeated
   * when the connection breaks.
   */
  readonly checkHistory?: boolean | undefined;
  /**
   * Spans for all calls, with the application's OpenTelemetry; left out for spans if the application has it set up by the
   * first call.
   */
  readonly tracing?: boolean | undefined;
}

/** Of each call. */
export interface CallOptions {
  /** Until it fails with DeadlineExceeded; Infinity is no limit, left out is the client's. */
  readonly timeoutSeconds?: number | undefined;
  /** Ends it with an AbortError. */
  readonly signal?: AbortSignal | undefined;
}

/** How tokens are chosen, as every generation and turn takes it. */
export interface SamplingOptions {
  /** What the answer has to be. */
  readonly grammar?: Grammar | undefined;
  /** How the model thinks before it: a grammar begins behind that, and it can have a bound. */
  readonly reasoning?: Reasoning | undefined;
  /** 0 is greedy, too. */
  readonly temperature?: number | undefined;
  /** Keep the most probable tokens up to this mass. */
  readonly topP?: number | undefined;
  /** Keep this many tokens; 0 keeps all. */
  readonly topK?: number | undefined;
  /** Keep the tokens that are at least this many times as likely as the likeliest; 0 keeps all. */
  readonly minP?: number | undefined;
  /** Within -2 and 2; taken off the logit of a token that this generation has produced. */
  readonly presencePenalty?: number | undefined;
  /** Within -2 and 2; taken off once for each time that it has. */
  readonly frequencyPenalty?: number | undefined;
  /** Added to logits by token id; at most 1,024 entries. */
  readonly logitBias?: ReadonlyMap<number, number> | Readonly<Record<number, number>> | undefined;
  /** Left out, the runtime draws one, which the result reports. */
  readonly seed?: bigint | number | undefined;
  /**
   * Stop once the tokens of this generation end with one of these, which is yielded as an EOS token is; at most 16 of 1
   * to 64 tokens.
   */
  readonly stopTokenSequences?: Iterable<TokenIds> | undefined;
  /** Fill `details` with each token's log-probability and those of this many likeliest ids; at most 20, 0: its alone. */
  readonly logprobs?: number | undefined;
  /**
   * Above 0 and at most 2; divides the logit of a token that this generation has produced where it is positive,
   * multiplies it elsewhere.
   */
  readonly repetitionPenalty?: number | undefined;
  /**
   * Until so many are produced no EOS token is chosen, unless a grammar leaves nothing else, and stop sequences are not
   * looked for; at most maxTokens.
   */
  readonly minTokens?: number | undefined;
  /** No EOS token is ever chosen; not beside a grammar. */
  readonly ignoreEos?: boolean | undefined;
}

/** Of a generation. */
export interface GenerateOptions extends SamplingOptions, CallOptions {
  /** At least 1. */
  readonly maxTokens: number;
}

/** Of a session that is opened. */
export interface SessionOptions {
  /** Generation stops after one of these. */
  readonly eosTokenIds?: TokenIds | undefined;
  /** Free text for the operator's eyes, at most 256 bytes. */
  readonly label?: string | undefined;
  /** May be left out when the runtime serves exactly one. */
  readonly model?: string | undefined;
  /** First tokens that are never evicted; left out: the worker's. */
  readonly sink?: number | undefined;
  /** Last tokens that are kept; left out: the worker's, or what the sinks leave of the lane. */
  readonly window?: number | undefined;
  /** First tokens to keep for ever, such as a system prompt; raises `sink` to at least this many. */
  readonly pin?: number | undefined;
  /** What happens when the history outgrows sink and window; left out: "evict". */
  readonly onOverflow?: OverflowPolicy | undefined;
  /**
   * What drafts tokens for it, which its worker then checks several at once: "none", "ngram", or another proposer that workers
   * have. It changes no token. Left out: the worker's, of a fork the source's.
   */
  readonly speculation?: string | undefined;
  /**
   * Open it only on a worker of this fingerprint (`fingerprint` of a session), where the same tokens, sink and window give
   * the same bits if that worker is exact.
   */
  readonly fingerprint?: string | undefined;
  /**
   * After its worker was lost, or it was parked or moved, it may go on with a worker of another fingerprint that serves the
   * same model, where none of its own has room. Tokens that have arrived stay as they are; it is not exact from then on.
   */
  readonly inexactResume?: boolean | undefined;
  /** Idle time after which the session expires; left out: the router's. */
  readonly ttlSeconds?: number | undefined;
  /** Idle time after which it is parked, where its worker has a snapshot store; left out: never. */
  readonly parkAfterSeconds?: number | undefined;
  /**
   * You can make it anew, so it makes room for others once its answer has ended: it is parked, or closed. A later call may
   * throw SessionNotFound.
   */
  readonly disposable?: boolean | undefined;
  /**
   * It holds what many conversations begin with, which are forks of it. It is disposable, and of more such sessions of a
   * tenant than the router keeps the least recently used is closed.
   */
  readonly head?: boolean | undefined;
  /**
   * A session, or the id of one, with whose history the new one begins: its KV is copied, not computed. Model, sink, window
   * and onOverflow are the source's; EOS tokens too, unless some are given.
   */
  readonly forkFrom?: Session | string | undefined;
  /**
   * History length at which to branch off; left out: the source's present one. An earlier one comes from what the runtime
   * remembers of the source, which may be busy or parked.
   */
  readonly boundary?: number | undefined;
  /**
   * Calls with the same one get the same session, for 10 minutes. It is not closed then where no answer is seen, since it
   * may be another call's.
   */
  readonly requestId?: string | undefined;
  /**
   * How long to try again, as late as the runtime asks, while it has no free lane, its queue is full or a quota is used up;
   * on top of the timeout.
   */
  readonly waitForCapacitySeconds?: number | undefined;
}

/** As `createSession` takes them. */
export interface CreateSessionOptions extends SessionOptions, CallOptions {
  /**
   * For one answer: the runtime closes it when its first generation has ended, also by a cancel or an error, and never
   * writes it to a snapshot store. A fork is for one answer only where it says so itself.
   */
  readonly ephemeral?: boolean | undefined;
}

/** What turns are told whose session is not at hand. */
export interface PlaceOptions extends GenerateOptions {
  /**
   * Of the place where the answer begins, as `tag` of a session gives them, in the same call. Of a runtime whose models
   * name the feature "turn-search"; others pass them over.
   */
  readonly startTags?: Iterable<Uint8Array> | undefined;
  /** Until the session is there, as `timeoutSeconds` of `createSession`. */
  readonly openTimeoutSeconds?: number | undefined;
}

/** As a client's `turn` takes them. */
export interface TurnOptions extends SessionOptions, PlaceOptions {
  /**
   * The session is closed when the generation has ended, in whatever way; the default. False leaves it open: the
   * generation's `session` goes on with it.
   */
  readonly ephemeral?: boolean | undefined;
}

/** As a client's `turnFound` takes them. */
export interface TurnFoundOptions extends SessionOptions, PlaceOptions {
  /** By the index of its tag, each place that the tokens are for, and how many of them, from the first, lie before it. */
  readonly expected: ReadonlyMap<number, number> | Readonly<Record<number, number>>;
  /** Where nothing is found it is in a new session, which stays open, with these options. */
  readonly opens: boolean;
}

/** As `fork` of a session takes them. */
export type ForkOptions = Omit<CreateSessionOptions, "forkFrom">;

/** Of an append. */
export interface AppendOptions extends CallOptions {
  /**
   * Fill the result's `details` with each token's log-probability, given all before it, and those of this many likeliest
   * ids; at most 20, 0 for the token's alone.
   */
  readonly logprobs?: number | undefined;
}

/** Of a rewind. */
export interface RewindOptions extends CallOptions {
  /** Refused where a place beyond has tags. */
  readonly onlyUntagged?: boolean | undefined;
  /** Refused where another operation is the latest. */
  readonly opId?: string | undefined;
}

/** Of `tag` of a session. */
export interface TagOptions extends CallOptions {
  /** Of the generation whose answer it is; may be left out for a head. */
  readonly opId?: string | undefined;
}

/** Of a search by tags. */
export interface FindOptions extends CallOptions {
  /** Of the session; left out where the runtime has a default. */
  readonly model?: string | undefined;
  /** Of the one session to look at; left out: all. A runtime of an older version looks at all anyway. */
  readonly sessionId?: string | undefined;
}

/** Of `watch`. */
export interface WatchOptions {
  /** Least time between two events, 0.1 to 60; left out: the runtime's, half a second. */
  readonly intervalSeconds?: number | undefined;
  /** Ends it with an AbortError. */
  readonly signal?: AbortSignal | undefined;
}
