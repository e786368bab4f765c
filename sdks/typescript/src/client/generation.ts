/** The tokens of one Generate, alone or at the end of a turn. */

import type * as wire from "../_generated/kakeya/v1/runtime_pb.js";
import { Cancelled, KakeyaError } from "../errors.js";
import type { FoundSession } from "../results/sessions.js";
import {
  generateResult,
  tokenDetail,
  truncation,
  type AppendResult,
  type GenerateResult,
  type TokenDetail,
  type Truncation,
} from "../results/turns.js";
import { aborted, onAbort } from "../transport/deadline.js";
import type { Calls } from "./calls.js";
import type { History } from "./history.js";
import { Operation } from "./operation.js";
import type { CallOptions } from "./options.js";
import type { Session } from "./session.js";
import type { Turn } from "./turn.js";

/**
 * Yields token ids. Nothing is sent before it is iterated, begun, or collected with `all`.
 *
 * A request that is refused fails at the first token. Should the connection break later, or the router be gone, it goes on
 * by itself after the last token that has arrived. Leaving an iteration before its end cancels the call, and so do `cancel`
 * and the `signal`; what was generated stays.
 */
export class Generation implements AsyncIterable<number, void>, AsyncDisposable {
  /** What the model could not see any more at the start; null if it saw all. */
  truncated: Truncation | null = null;
  /** One for each token so far, where `logprobs` asked for them; the last is of the last token. */
  readonly details: TokenDetail[] = [];
  /** The result; null before the end, and for ever if the call failed or was cancelled. */
  done: GenerateResult | null = null;

  readonly #calls: Calls;
  readonly #operation: Operation;
  readonly #options: CallOptions;
  readonly #hasDetails: boolean;
  #beginning: Promise<void> | undefined;
  #hasBegun = false;
  #failure: KakeyaError | undefined;
  #unlisten = (): void => undefined;

  /** @internal */
  constructor(
    calls: Calls,
    history: History,
    request: wire.GenerateRequest,
    options: CallOptions,
    where: { readonly session?: Session; readonly turn?: Turn },
  ) {
    this.#calls = calls;
    this.#operation = new Operation(calls, history, request, where);
    this.#options = options;
    this.#hasDetails = request.logprobs !== undefined;
  }

  /** That it is in; null while a turn of a client has not begun. */
  get session(): Session | null {
    return this.#operation.session;
  }

  /** What the search of a turn came to; null: nothing, or there was none. */
  get found(): FoundSession | null {
    return this.#operation.found;
  }

  /** What the append of a turn answered; null without one. */
  get appended(): AppendResult | null {
    return this.#operation.appended;
  }

  /** Names the operation in the runtime's logs and traces; "" before it starts. */
  get opId(): string {
    return this.#operation.opId;
  }

  /** One iteration over what is left; leaving it cancels the call. */
  [Symbol.asyncIterator](): AsyncIterableIterator<number, void> {
    return {
      next: async () => {
        const value = await this.nextToken();
        return value === null ? { done: true, value: undefined } : { done: false, value };
      },
      return: () => {
        this.cancel();
        return Promise.resolve({ done: true, value: undefined });
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  }

  /** As `cancel`. */
  [Symbol.asyncDispose](): Promise<void> {
    this.cancel();
    return Promise.resolve();
  }

  /**
   * Sends it, and returns when the `session` of a turn is there, of which all parts have been checked then.
   *
   * All else begins it by itself.
   *
   * @throws KakeyaError
   */
  async begin(): Promise<void> {
    if (this.#failure !== undefined) {
      throw this.#failure;
    }
    await (this.#beginning ??= this.#begin());
    this.#hasBegun = true;
  }

  /**
   * Every token, once the last one is there.
   *
   * @throws KakeyaError
   */
  async all(): Promise<number[]> {
    const tokenIds = [];
    for await (const tokenId of this) {
      tokenIds.push(tokenId);
    }
    return tokenIds;
  }

  /**
   * The next token, null after the last. One at a time.
   *
   * @throws KakeyaError; Cancelled where the generation was left before, AbortError where its `signal` ended it.
   */
  async nextToken(): Promise<number | null> {
    if (!this.#hasBegun || this.#failure !== undefined) {
      await this.begin();
    }
    try {
      for (;;) {
        const response = await this.#operation.next();
        if (response === undefined) {
          return null;
        }
        const { payload, detail } = response;
        if (payload.case === "tokenId") {
          if (this.#hasDetails) {
            this.details.push(tokenDetail(payload.value, detail));
          }
          return payload.value;
        }
        if (payload.case === "truncated") {
          this.truncated = truncation(payload.value);
        } else if (payload.case === "done") {
          this.done = generateResult(payload.value);
          this.#unlisten();
          await this.#operation.finish(payload.value);
        }
      }
    } catch (error) {
      throw this.#failed(error);
    }
  }

  /** Stops the operation within one step; nothing happens if it is over. Who waits for a token gets Cancelled. */
  cancel(): void {
    this.#stop(new Cancelled("the generation was left before its end"));
  }

  #stop(error: KakeyaError): void {
    if (this.done === null && this.#failure === undefined) {
      this.#operation.stop(error);
      this.#fail(error);
    }
  }

  async #begin(): Promise<void> {
    try {
      const deadline = this.#calls.operationDeadline(this.#options);
      deadline.throwIfAborted();
      this.#unlisten = onAbort(deadline.signal, (error) => {
        this.#stop(error);
      });
      await this.#operation.begin(deadline);
    } catch (error) {
      throw this.#failed(error);
    }
  }

  /** What is thrown ends the generation; of several cancellations the first is told. */
  #failed(error: unknown): unknown {
    this.#fail(error);
    this.#operation.giveUp();
    return error instanceof Cancelled ? this.#failure : error;
  }

  #fail(error: unknown): void {
    this.#operation.ended(error);
    this.#unlisten();
    if (this.#failure === undefined) {
      const { signal } = this.#options;
      const failure =
        error instanceof KakeyaError ? error : new Cancelled("the generation has failed", { cause: error });
      this.#failure = signal?.aborted ? aborted(signal, [...this.#operation.tokenIds]) : failure;
    }
  }
}
