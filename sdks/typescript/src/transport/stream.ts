/** A running call with a stream of responses, read one at a time: who does not read has the server pause. */

import type { ClientReadableStream, ServiceError } from "@grpc/grpc-js";

import { Cancelled, DeadlineExceeded, type KakeyaError } from "../errors.js";

/** Responses that are kept for who reads; then the call is paused, and Node and the runtime keep what theirs to keep is. */
const MAX_UNREAD = 16;

interface Reader<T> {
  readonly resolve: (message: T | undefined) => void;
  readonly reject: (error: unknown) => void;
}

export class Stream<T> {
  readonly #call: ClientReadableStream<T>;
  readonly #translated: (error: ServiceError) => KakeyaError;
  readonly #unread: T[] = [];
  #reader: Reader<T> | undefined;
  #failure: KakeyaError | undefined;
  #isOver = false;
  #opId = "";
  #onOver: (error?: KakeyaError) => void = () => undefined;

  constructor(call: ClientReadableStream<T>, translated: (error: ServiceError) => KakeyaError) {
    this.#call = call;
    this.#translated = translated;
    call.on("metadata", (metadata) => (this.#opId = String(metadata.get("kakeya-op-id")[0] ?? "")));
    call.on("data", (message: T) => {
      this.#take(message);
    });
    call.on("error", (error: ServiceError) => {
      this.#failure ??= this.#translated(error); // told at the end: what has arrived comes first
    });
    call.on("end", () => {
      this.#end();
    });
  }

  /** Names the operation; "" before the first response, and where the runtime has not said it. */
  get opId(): string {
    return this.#opId;
  }

  /** Has `act` called, once, when who reads learns that it is over, or it is cancelled. */
  whenOver(act: (error?: KakeyaError) => void): void {
    this.#onOver = act;
  }

  /**
   * The next response, undefined at the end. One at a time.
   *
   * @throws KakeyaError; DeadlineExceeded where it does not come within so many seconds.
   */
  read(withinSeconds = Infinity): Promise<T | undefined> {
    const message = this.#unread.shift();
    if (message !== undefined) {
      return Promise.resolve(message);
    }
    const answer = new Promise<T | undefined>((resolve, reject) => (this.#reader = { resolve, reject }));
    if (this.#isOver) {
      this.#tell();
    } else if (this.#call.isPaused()) {
      this.#call.resume();
    }
    return withinSeconds === Infinity ? answer : this.#within(withinSeconds, answer);
  }

  /** Tells the server to stop, and throws `error` to who reads; nothing happens if the call is over. */
  cancel(error: KakeyaError = new Cancelled("the call was cancelled from this side")): void {
    if (!this.#isOver) {
      this.#failure ??= error;
      this.#call.cancel();
      this.#end();
    }
  }

  #take(message: T): void {
    const reader = this.#reader;
    if (reader !== undefined) {
      this.#reader = undefined;
      reader.resolve(message);
    } else if (this.#unread.push(message) === MAX_UNREAD) {
      this.#call.pause();
    }
  }

  #end(): void {
    this.#isOver = true;
    this.#tell();
  }

  /** To who reads, if somebody does. */
  #tell(): void {
    const reader = this.#reader;
    if (reader === undefined) {
      return;
    }
    this.#reader = undefined;
    if (this.#failure === undefined) {
      reader.resolve(undefined);
    } else {
      reader.reject(this.#failure);
    }
    this.#onOver(this.#failure);
  }

  async #within(seconds: number, answer: Promise<T | undefined>): Promise<T | undefined> {
    const timer = setTimeout(() => {
      this.cancel(new DeadlineExceeded(`no answer within ${seconds} s`));
    }, seconds * 1000);
    try {
      return await answer;
    } finally {
      clearTimeout(timer);
    }
  }
}
