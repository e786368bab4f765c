/** A running call with a stream of responses, read one at a time: who does not read has the server pause. */

import type { ClientReadableStream, ServiceError } from "@grpc/grpc-js";

import { Cancelled, DeadlineExceeded, type KakeyaError } from "../errors.js";

interface Reader<T> {
  readonly resolve: (message: T | undefined) => void;
  readonly reject: (error: unknown) => void;
}

export class Stream<T> {
  readonly #call: ClientReadableStream<T>;
  readonly #translated: (error: ServiceError) => KakeyaError;
  #reader: Reader<T> | undefined;
  #failure: KakeyaError | undefined;
  #hasEnded = false;
  #opId = "";

  constructor(call: ClientReadableStream<T>, translated: (error: ServiceError) => KakeyaError) {
    this.#call = call;
    this.#translated = translated;
    call.on("metadata", (metadata) => (this.#opId = String(metadata.get("kakeya-op-id")[0] ?? "")));
    call.on("readable", () => {
      this.#serve();
    });
    call.on("end", () => {
      this.#hasEnded = true;
      this.#serve();
    });
    call.on("error", (error: ServiceError) => {
      this.#failure ??= this.#translated(error);
      this.#serve();
    });
  }

  /** Names the operation; "" before the first response, and where the runtime has not said it. */
  get opId(): string {
    return this.#opId;
  }

  /**
   * The next response, undefined at the end. One at a time.
   *
   * @throws KakeyaError; DeadlineExceeded where it does not come within so many seconds.
   */
  read(withinSeconds = Infinity): Promise<T | undefined> {
    const answer = new Promise<T | undefined>((resolve, reject) => (this.#reader = { resolve, reject }));
    this.#serve();
    if (this.#reader === undefined || withinSeconds === Infinity) {
      return answer;
    }
    const timer = setTimeout(() => {
      this.cancel(new DeadlineExceeded(`no answer within ${withinSeconds} s`));
    }, withinSeconds * 1000);
    return answer.finally(() => {
      clearTimeout(timer);
    });
  }

  /** Tells the server to stop, and throws `error` to who reads; nothing happens if the call is over. */
  cancel(error: KakeyaError = new Cancelled("the call was cancelled from this side")): void {
    if (!this.#hasEnded) {
      this.#failure ??= error;
      this.#call.cancel();
      this.#serve();
    }
  }

  /** Answers who reads, if there is an answer. What has arrived comes before what went wrong after it. */
  #serve(): void {
    const reader = this.#reader;
    if (reader === undefined) {
      return;
    }
    const message = this.#call.read() as T | null;
    if (message === null && this.#failure === undefined && !this.#hasEnded) {
      return;
    }
    this.#reader = undefined;
    if (message !== null) {
      reader.resolve(message);
    } else if (this.#failure !== undefined) {
      reader.reject(this.#failure);
    } else {
      reader.resolve(undefined);
    }
  }
}
