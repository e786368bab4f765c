/**
 * When to try a failed call again, and when to stop.
 *
 * Only what is safe is retried: a call that the runtime recognises when it comes twice, or one that it refused before
 * anything happened.
 */

import {
  Cancelled,
  ConnectionFailed,
  DeadlineExceeded,
  Exhausted,
  HistoryLengthMismatch,
  KakeyaError,
  OperationRunning,
  OperationStopped,
  RpcFailed,
  TooManyCalls,
  Unavailable,
  WorkerLost,
} from "../errors.js";
import { now, type Deadline } from "./deadline.js";

/**
 * How long the runtime may take to stop an operation whose call was cancelled or lost: one step and one write, or where its
 * router has vanished the rest of the operation's lease, 5 s by default.
 */
export const SETTLE_SECONDS = 10;

const FIRST_BACKOFF_SECONDS = 0.1;
const MAX_BACKOFF_SECONDS = 2;

/** How a call may be repeated. */
export interface RetryOptions {
  /** How often UNAVAILABLE, or a runtime with too many calls, may be met; 1 for a call that is not safe to repeat. */
  readonly maxAttempts?: number;
  /** How long it may be waited out that something is used up. */
  readonly waitForCapacitySeconds?: number;
  /** The call is of an operation that is gone on with when it was stopped by no caller's wish. */
  readonly mayGoOn?: boolean;
}

/** Decides over the failures of one call. */
export class Retry {
  /** An attempt got lost, and nobody here knows what it did. */
  mayHaveTakenEffect = false;

  readonly #maxAttempts: number;
  readonly #mayGoOn: boolean;
  readonly #capacityUntil: number;
  #settleUntil = 0;
  #numFailures = 0;
  #numTurnedAway = 0;

  /**
   * @param deadline - shared by all attempts, waiting included.
   */
  constructor(
    readonly deadline: Deadline,
    { maxAttempts = 1, waitForCapacitySeconds = 0, mayGoOn = false }: RetryOptions = {},
  ) {
    this.#maxAttempts = maxAttempts;
    this.#mayGoOn = mayGoOn;
    this.#capacityUntil = now() + waitForCapacitySeconds;
  }

  /** Attempts until it succeeds, or `delaySeconds` gives up. */
  async run<T>(attempt: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        const delaySeconds = this.delaySeconds(error);
        if (delaySeconds === null) {
          throw error;
        }
        await this.deadline.sleep(delaySeconds);
      }
    }
  }

  /** How long to wait before the next attempt; null to give up and throw `error`. */
  delaySeconds(error: unknown): number | null {
    if (!(error instanceof KakeyaError)) {
      return null;
    }
    this.#numFailures += 1;
    if (error instanceof Unavailable || error instanceof TooManyCalls || error instanceof OperationStopped) {
      this.#numTurnedAway += 1;
    }
    const backoff = Math.min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** (this.#numFailures - 1));
    const delay = (error.retryAfterSeconds ?? 0) + backoff * (0.5 + Math.random() / 2);
    return this.#allows(error, now() + delay) && delay < this.deadline.remainingSeconds ? delay : null;
  }

  /** Until then (`now`) a conflict is put down to an operation of ours that is being stopped. */
  settlingUntil(moment: number): void {
    this.#settleUntil = Math.max(this.#settleUntil, moment);
  }

  /** An attempt got lost: the session may be changed, and its operation may still be running. */
  effectIsUnknown(): void {
    this.mayHaveTakenEffect = true;
    this.settlingUntil(now() + SETTLE_SECONDS);
  }

  /** Whether another attempt may begin at a moment. */
  #allows(error: KakeyaError, begins: number): boolean {
    if (error instanceof Exhausted && begins <= this.#capacityUntil) {
      return true;
    }
    if (error instanceof OperationRunning) {
      return begins <= this.#settleUntil;
    }
    if (error instanceof HistoryLengthMismatch) {
      // Not after a lost attempt of this call: part of its tokens are in the history, and it is not for us to guess
      // what to do about that.
      return begins <= this.#settleUntil && !this.mayHaveTakenEffect;
    }
    if (error instanceof OperationStopped) {
      const isUnread = error.metadata.cause === "unread";
      return this.#mayGoOn && !isUnread && this.#numTurnedAway < this.#maxAttempts;
    }
    if (error instanceof WorkerLost) {
      return false;
    }
    return (error instanceof Unavailable || error instanceof TooManyCalls) && this.#numTurnedAway < this.#maxAttempts;
  }
}

/** Whether the runtime may still be busy with an operation whose call ended so on this side. */
export function leavesOperationRunning(error: unknown): boolean {
  return (
    !(error instanceof KakeyaError) ||
    error instanceof ConnectionFailed ||
    error instanceof Cancelled ||
    error instanceof DeadlineExceeded ||
    error instanceof RpcFailed
  );
}
