/** A session on a runtime. */

import { create } from "@bufbuild/protobuf";

import * as wire from "../_generated/kakeya/v1/runtime_pb.js";
import { SessionNotFound } from "../errors.js";
import { number64 } from "../results/number64.js";
import { parkResult, sessionInfo, type ParkResult, type PlaceKind, type SessionInfo } from "../results/sessions.js";
import { appendResult, sight, type AppendResult, type RewindResult } from "../results/turns.js";
import type { Span } from "../spans/tracing.js";
import { fill, tokenList, type TokenIds } from "../transport/fields.js";
import { generateRequest, tagRequest } from "../transport/requests.js";
import { Retry } from "../transport/retry.js";
import type { Calls } from "./calls.js";
import { Generation } from "./generation.js";
import { History } from "./history.js";
import { Opening } from "./opening.js";
import type { AppendOptions, CallOptions, ForkOptions, GenerateOptions, RewindOptions, TagOptions } from "./options.js";
import { SessionTurn } from "./turn.js";

const { method } = wire.RuntimeService;

/**
 * A conversation whose tokens and KV live on the server. Comes from a client's `createSession` or `session`.
 *
 * With `await using` it is closed when the block is left. One operation at a time runs on a session; a second one, from
 * here or elsewhere, is refused with OperationRunning.
 */
export class Session implements AsyncDisposable {
  /** Unguessable; a caller that has it can use the session. */
  readonly id: string;
  /** What serves it. As all that follows null on a session that was attached to. */
  readonly model: string | null;
  /** First tokens that are never evicted. */
  readonly sink: number | null;
  /** Last tokens that are kept. */
  readonly window: number | null;
  /** Its whole lane, slack included. */
  readonly reservedBytes: number | null;
  /**
   * Whether its logits are the same to the bit however tokens are chunked and batched, and wherever it runs within one
   * fingerprint.
   */
  readonly exact: boolean | null;
  /** Digest of all that the bits depend on, beside tokens, sink and window. */
  readonly fingerprint: string | null;
  /** Of the model. */
  readonly vocabSize: number | null;
  /** The runtime closes it when its generation has ended. */
  readonly ephemeral: boolean | null;

  /** @internal */
  readonly history: History;

  readonly #calls: Calls;
  readonly #checksHistory: boolean;
  #closing: Promise<number | null> | undefined;

  /** @internal */
  constructor(calls: Calls, id: string, checksHistory: boolean, opened?: wire.CreateSessionResponse) {
    this.id = id;
    this.model = opened?.model ?? null;
    this.sink = opened?.sink ?? null;
    this.window = opened?.window ?? null;
    this.reservedBytes = opened ? number64(opened.reservedBytes) : null;
    this.exact = opened?.exact ?? null;
    this.fingerprint = opened?.fingerprint ?? null;
    this.vocabSize = opened?.vocabSize ?? null;
    this.ephemeral = opened?.ephemeral ?? null;
    this.history = new History(calls, id, opened ? number64(opened.historyLength) : null, checksHistory);
    this.#calls = calls;
    this.#checksHistory = checksHistory;
  }

  /**
   * Tokens so far; null where this client cannot know.
   *
   * That is while an operation runs, after one that did not succeed, and before the first on a session that was attached
   * to. `info` always knows.
   */
  get historyLength(): number | null {
    return this.history.length;
  }

  /**
   * Appends tokens to the history and prefills their KV.
   *
   * Repeated by itself if the connection breaks: the expected history length that goes with it lets the runtime recognise
   * tokens that are already there.
   *
   * @throws KakeyaError; an InvalidRequest before anything is sent if there is something other than ids in it.
   */
  async append(tokenIds: TokenIds, options: AppendOptions = {}): Promise<AppendResult> {
    return this.appendIn(tokenList(tokenIds), options);
  }

  /**
   * Generates from the end of the history, once the result is iterated, begun or collected.
   *
   * @throws InvalidField a value does not fit its field. Whatever else is wrong comes with the first answer.
   */
  generate({ maxTokens, timeoutSeconds, signal, ...sampling }: GenerateOptions): Generation {
    const request = generateRequest(this.id, maxTokens, sampling);
    return new Generation(this.#calls, this.history, request, { timeoutSeconds, signal }, { session: this });
  }

  /**
   * Appends tokens and generates, as `append` and `generate`, in one call; the timeout is for both.
   *
   * All of it is checked before the tokens are appended.
   *
   * @throws InvalidField, TokenOutOfVocabulary: as `append` and `generate`.
   */
  turn(tokenIds: TokenIds, { maxTokens, timeoutSeconds, signal, ...sampling }: GenerateOptions): Generation {
    const ids = tokenList(tokenIds);
    const request = generateRequest(this.id, maxTokens, sampling);
    const turn = new SessionTurn(this.#calls, this, ids, this.#maxAttempts);
    return new Generation(this.#calls, this.history, request, { timeoutSeconds, signal }, { session: this, turn });
  }

  /**
   * A new session with this one's history; see `forkFrom` of `createSession`, whose options it takes.
   *
   * @throws KakeyaError BoundaryNotReachable, EmptyHistory, OperationRunning; and as `createSession`.
   */
  async fork(options: ForkOptions = {}): Promise<Session> {
    const opening = new Opening(this.#calls, { ...options, forkFrom: this });
    const opened = await opening.open();
    return new Session(this.#calls, opened.sessionId, this.#checksHistory, opened);
  }

  /**
   * Takes the last tokens of the history back, down to a length, as if they had never been.
   *
   * Any length is reachable while the session has forgotten nothing, later at least the ends of its last four turns.
   *
   * @throws KakeyaError BoundaryNotReachable, whose `metadata` lists what is reachable; nothing has changed then.
   */
  async rewind(historyLength: number, { onlyUntagged, opId, ...call }: RewindOptions = {}): Promise<RewindResult> {
    const request = create(wire.RewindSessionRequestSchema, { sessionId: this.id });
    fill(wire.RewindSessionRequestSchema, request, { targetLength: historyLength, onlyUntagged, opId });
    const { maxAttempts } = this.#calls.options;
    const retry = new Retry(this.#calls.operationDeadline(call), { maxAttempts, mayGoOn: true });
    return this.history.operate(async (expectedHistoryLength) => {
      fill(wire.RewindSessionRequestSchema, request, { expectedHistoryLength });
      const result = sight(await this.#calls.unary(method.rewindSession, request, retry.deadline));
      this.history.settled(result.historyLength);
      return result;
    }, retry);
  }

  /**
   * Gives a place of the history tags, by which a client's `findSession` finds it. Repeated, it changes nothing.
   *
   * @param kind - "answer_start" or "answer_end" of the last answer, or the "head" before it.
   * @param historyLength - tokens before the place.
   * @param tags - one to four, of 32 bytes each.
   * @throws KakeyaError BoundaryNotReachable where the history has gone on or was taken back since.
   */
  async tag(
    kind: PlaceKind,
    historyLength: number,
    tags: Iterable<Uint8Array>,
    { opId = "", ...call }: TagOptions = {},
  ): Promise<void> {
    await this.#calls.repeated(method.tagTurn, tagRequest(this.id, kind, historyLength, tags, opId), call);
  }

  /**
   * Describes the session: waits for no running operation, does not count as use.
   *
   * @throws KakeyaError
   */
  async info(options: CallOptions = {}): Promise<SessionInfo> {
    const request = create(wire.GetSessionInfoRequestSchema, { sessionId: this.id });
    return sessionInfo(await this.#calls.repeated(method.getSessionInfo, request, options));
  }

  /**
   * Gives the session's lane to others until its next call, which gives it one again and takes longer for that.
   *
   * @throws KakeyaError OperationRunning while one runs; SnapshotStoreUnavailable where its history would not be kept. The
   * session then stays as it is.
   */
  async park(options: CallOptions = {}): Promise<ParkResult> {
    const request = create(wire.ParkSessionRequestSchema, { sessionId: this.id });
    const retry = new Retry(this.#calls.deadline(options), { maxAttempts: this.#calls.options.maxAttempts });
    retry.settlingUntil(this.history.settleUntil);
    return parkResult(await retry.run(() => this.#calls.unary(method.parkSession, request, retry.deadline)));
  }

  /**
   * Frees the session's lane; a running operation ends with SessionClosed. The second time, and of an ephemeral session
   * that has answered, nothing happens and the answer is the same.
   *
   * @returns the final history length; null if the runtime did not have the session any more.
   * @throws KakeyaError
   */
  async close(options: CallOptions = {}): Promise<number | null> {
    if (this.ephemeral && this.history.hasAnswer) {
      this.#closing ??= Promise.resolve(this.history.length);
    }
    const closing = (this.#closing ??= this.#close(options));
    closing.catch(() => (this.#closing = undefined)); // to be tried again
    return closing;
  }

  /** As `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal */
  async appendIn(
    tokenIds: readonly number[],
    { logprobs, ...call }: AppendOptions,
    parent?: Span,
  ): Promise<AppendResult> {
    const request = create(wire.AppendTokensRequestSchema, { sessionId: this.id, tokenIds: [...tokenIds] });
    fill(wire.AppendTokensRequestSchema, request, { logprobs });
    const retry = new Retry(this.#calls.operationDeadline(call), { maxAttempts: this.#maxAttempts, mayGoOn: true });
    const attempt = async (expectedHistoryLength: number | undefined): Promise<AppendResult> => {
      fill(wire.AppendTokensRequestSchema, request, { expectedHistoryLength });
      const response = await this.#calls.unary(method.appendTokens, request, retry.deadline, parent);
      const result = appendResult(response, tokenIds);
      this.history.settled(result.historyLength);
      return result;
    };
    return this.history.operate(attempt, retry, parent);
  }

  /** Of what appends, which without a length to go by is not safe to repeat. */
  get #maxAttempts(): number {
    return this.#checksHistory ? this.#calls.options.maxAttempts : 1;
  }

  async #close(options: CallOptions): Promise<number | null> {
    const request = create(wire.CloseSessionRequestSchema, { sessionId: this.id });
    try {
      const response = await this.#calls.repeated(method.closeSession, request, options);
      return number64(response.finalHistoryLength);
    } catch (error) {
      if (error instanceof SessionNotFound) {
        return null;
      }
      throw error;
    }
  }
}
