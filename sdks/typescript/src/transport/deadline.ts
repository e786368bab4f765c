/** How long a call may take, whatever it consists of. */

import { AbortError } from "../errors.js";

/** The present, in seconds of a clock that only goes forward. */
export function now(): number {
  return performance.now() / 1000;
}

/** The end that all attempts of one call share: a moment, and the caller's signal. */
export class Deadline {
  readonly #at: number;

  /**
   * @param timeoutSeconds - from now on; Infinity is never.
   */
  constructor(
    timeoutSeconds: number,
    readonly signal?: AbortSignal,
  ) {
    this.#at = now() + timeoutSeconds;
  }

  /** At least 0; Infinity for no limit. */
  get remainingSeconds(): number {
    return Math.max(0, this.#at - now());
  }

  /** As gRPC takes it. */
  get date(): Date | number {
    return this.#at === Infinity ? Infinity : new Date(Date.now() + this.remainingSeconds * 1000);
  }

  /**
   * @throws AbortError
   */
  throwIfAborted(): void {
    if (this.signal?.aborted) {
      throw aborted(this.signal);
    }
  }

  /**
   * @throws AbortError
   */
  async sleep(seconds: number): Promise<void> {
    this.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
      const leave = onAbort(this.signal, (error) => {
        clearTimeout(timer);
        reject(error);
      });
      const timer = setTimeout(() => {
        leave();
        resolve();
      }, seconds * 1000);
    });
  }
}

/**
 * Has `act` called once the signal aborts.
 *
 * @returns what takes that back.
 */
export function onAbort(signal: AbortSignal | undefined, act: (error: AbortError) => void): () => void {
  if (signal === undefined) {
    return () => undefined;
  }
  const listener = (): void => {
    act(aborted(signal));
  };
  signal.addEventListener("abort", listener, { once: true });
  return () => {
    signal.removeEventListener("abort", listener);
  };
}

/** What is thrown for a signal that has aborted. */
export function aborted(signal: AbortSignal, tokenIds: readonly number[] = []): AbortError {
  return new AbortError("the call was aborted by its signal", { cause: signal.reason }, tokenIds);
}
