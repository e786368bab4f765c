/** What the client knows of a session's history, so that each operation can say where it believes to start. */

import { create } from "@bufbuild/protobuf";

import { GetSessionInfoRequestSchema, RuntimeService } from "../_generated/kakeya/v1/runtime_pb.js";
import { Conflict, OperationStopped, Unavailable } from "../errors.js";
import { number64 } from "../results/number64.js";
import type { Span } from "../spans/tracing.js";
import { now } from "../transport/deadline.js";
import { leavesOperationRunning, SETTLE_SECONDS, type Retry } from "../transport/retry.js";
import type { Calls } from "./calls.js";

/** Runs the operations of one session and keeps its length true. */
export class History {
  /** Tokens so far. It is null while an operation runs, and afterwards unless that succeeded. */
  length: number | null;
  /** Until then (`now`) an operation of ours may still be being stopped. */
  settleUntil = 0;
  /** A generation has come to its end. */
  hasAnswer = false;

  readonly #calls: Calls;
  readonly #sessionId: string;
  readonly #checks: boolean;

  /**
   * @param length - null where it is not known and must be read first.
   * @param checks - whether operations state the length they expect.
   */
  constructor(calls: Calls, sessionId: string, length: number | null, checks: boolean) {
    this.length = length;
    this.#calls = calls;
    this.#sessionId = sessionId;
    this.#checks = checks;
  }

  /** The length to state beside a request; undefined where it is not known, or not to be checked. */
  get expected(): number | undefined {
    return this.#checks ? (this.length ?? undefined) : undefined;
  }

  /**
   * Runs `attempt(expected history length)`; after an operation of ours that was cancelled or lost it waits until the
   * runtime has stopped that one.
   *
   * The attempt calls `settled` when it knows the new length.
   */
  async operate<T>(attempt: (expected: number | undefined) => Promise<T>, retry: Retry, parent?: Span): Promise<T> {
    let { expected } = this;
    this.length = null;
    retry.settlingUntil(this.settleUntil);
    const attemptOnce = async (): Promise<T> => {
      if (expected === undefined && this.#checks) {
        expected = await this.#readLength(retry, parent);
      }
      try {
        return await attempt(expected);
      } catch (error) {
        if (error instanceof Unavailable || error instanceof OperationStopped) {
          retry.effectIsUnknown();
        } else if (error instanceof Conflict && !retry.mayHaveTakenEffect) {
          expected = undefined; // the operation that was in the way has moved it
        }
        throw error;
      }
    };
    try {
      return await retry.run(attemptOnce);
    } catch (error) {
      this.lost(error);
      throw error;
    }
  }

  /** An operation ended and the session has this many tokens. */
  settled(length: number): void {
    this.length = length;
    this.settleUntil = 0;
  }

  /** A generation has come to its end, and the session has this many tokens. */
  answered(length: number): void {
    this.settled(length);
    this.hasAnswer = true;
  }

  /** The runtime never began the operation, before which the length was this. */
  untouched(length: number | null): void {
    this.length = length;
  }

  /** An operation ended with an error, on the runtime's side or on this. */
  lost(error: unknown): void {
    this.length = null;
    if (leavesOperationRunning(error)) {
      this.settleUntil = now() + SETTLE_SECONDS;
    }
  }

  async #readLength(retry: Retry, parent?: Span): Promise<number> {
    const request = create(GetSessionInfoRequestSchema, { sessionId: this.#sessionId });
    const response = await this.#calls.unary(RuntimeService.method.getSessionInfo, request, retry.deadline, parent);
    return number64(response.historyLength);
  }
}
