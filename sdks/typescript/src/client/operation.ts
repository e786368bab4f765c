/** One Generate, alone or at the end of a turn, as a stream of responses that goes on when it breaks. */

import { randomBytes } from "node:crypto";

import * as wire from "../_generated/kakeya/v1/runtime_pb.js";
import { Cancelled, FoundElsewhere, OperationStopped, RpcFailed, Unavailable, type KakeyaError } from "../errors.js";
import { number64 } from "../results/number64.js";
import { foundSession, type FoundSession } from "../results/sessions.js";
import type { AppendResult } from "../results/turns.js";
import type { Span } from "../spans/tracing.js";
import { Deadline } from "../transport/deadline.js";
import { fill } from "../transport/fields.js";
import { Retry } from "../transport/retry.js";
import type { Calls, StreamCall } from "./calls.js";
import type { History } from "./history.js";
import type { Session } from "./session.js";
import { isUnknown, type Turn } from "./turn.js";

const RESUME_ATTEMPTS = 8; // backoffs of some seven seconds: as long as a router takes to restart
const LEFT = "the generation was left before its end";

type Call = StreamCall<wire.GenerateResponse> | StreamCall<wire.TurnResponse>;

export class Operation {
  /** That it is in; null while a turn of a client has not begun. */
  session: Session | null;
  /** What the search of a turn came to; null: nothing, or there was none. */
  found: FoundSession | null = null;
  /** What the append of a turn answered; null without one. */
  appended: AppendResult | null = null;
  /** Names it in the runtime's logs and traces; "" before it starts. */
  opId = "";
  /** All that have arrived, which are to stand when it goes on elsewhere. */
  readonly tokenIds: number[] = [];

  readonly #calls: Calls;
  readonly #request: wire.GenerateRequest;
  #history: History;
  #turn: Turn | undefined;
  #turnSpan: Span | undefined; // of a turn that takes several calls
  #call: Call | undefined; // while it runs, if nobody has stopped it
  #first: wire.GenerateResponse | undefined; // read at the start, not yet taken
  #stopped: KakeyaError | undefined;
  #deadline = new Deadline(Infinity);

  constructor(
    calls: Calls,
    history: History,
    request: wire.GenerateRequest,
    { session, turn }: { readonly session?: Session; readonly turn?: Turn },
  ) {
    this.session = session ?? null;
    this.#calls = calls;
    this.#history = history;
    this.#request = request;
    this.#request.opId = randomBytes(8).toString("hex"); // a caller that repeats it goes on with it
    this.#turn = turn;
  }

  /**
   * Sends it, and returns when the session of a turn is there.
   *
   * @throws KakeyaError
   */
  async begin(deadline: Deadline): Promise<void> {
    this.#deadline = deadline;
    if (this.#turn !== undefined && (await this.#beginTurn(this.#turn))) {
      return;
    }
    try {
      await this.#history.operate((expected) => this.#open(expected), new Retry(this.#deadline), this.#turnSpan);
    } catch (error) {
      this.#first = await this.#goOn(error);
    }
  }

  /**
   * The next response, from wherever it goes on; undefined once it is over.
   *
   * @throws KakeyaError
   */
  async next(): Promise<wire.GenerateResponse | undefined> {
    if (this.#call === undefined) {
      return undefined;
    }
    let response;
    try {
      response = await this.#take(this.#call);
    } catch (error) {
      response = await this.#goOn(error);
    }
    if (response.payload.case === "tokenId") {
      this.tokenIds.push(response.payload.value);
    }
    return response;
  }

  /** Its result has come: what the connection still brings cannot change that. */
  async finish(done: wire.GenerateDone): Promise<void> {
    const call = this.#call;
    this.#call = undefined;
    this.#history.answered(number64(done.historyLength));
    call?.span.describe(done);
    // A runtime that says more would wait for us to read the rest.
    const rest = await call?.read().catch(() => undefined);
    if (rest !== undefined) {
      call?.cancel(new Cancelled(LEFT));
    }
    this.#turnSpan?.end();
  }

  /** Has the runtime stop it within one step; who waits for a response gets the error. */
  stop(error: KakeyaError): void {
    this.#stopped = error;
    this.#call?.cancel(error);
    this.ended(error);
  }

  /** It did not come to its end. */
  ended(error: unknown): void {
    if (this.#call !== undefined) {
      this.#call = undefined;
      this.#history.lost(error);
    }
    this.#turnSpan?.end(error);
  }

  /** Nobody can go on with what it leaves. */
  giveUp(): void {
    this.#turn?.failed();
  }

  /** Whether the runtime knows turns. Of one that does not, the tokens are appended. */
  async #beginTurn(turn: Turn): Promise<boolean> {
    if (this.#calls.hasTurn) {
      const { length } = this.#history;
      try {
        await this.#history.operate((expected) => this.#open(expected), turn.retry(this.#deadline));
        return true;
      } catch (error) {
        if (!isUnknown(error)) {
          throw error;
        }
        this.#calls.knowsNoTurn();
        this.#history.untouched(length);
      }
    }
    this.#turnSpan = await this.#calls.embrace("kakeya turn", this.#request.sessionId);
    await turn.inParts(this.#deadline, this.#turnSpan);
    this.#takeFrom(turn);
    return false;
  }

  /** With the first response: a refusal comes instead of it, and is the one failure that may be retried. */
  async #open(expected: number | undefined): Promise<Call> {
    this.#throwIfStopped();
    const turn = this.appended === null ? this.#turn : undefined;
    const call = await this.#send(turn, expected);
    this.#call = call;
    try {
      this.#throwIfStopped(); // before there was a call to cancel
      const response = await call.read(turn?.openingDeadline().remainingSeconds);
      this.#first = response && this.#heard(response, call);
      this.opId = call.opId;
      this.#throwIfStopped();
      return call;
    } catch (error) {
      this.#call = undefined;
      call.cancel(new Cancelled(LEFT));
      turn?.lost(error);
      throw error;
    }
  }

  /** Asks for the turn, or where that has appended its tokens, or there is none, for what is generated. */
  #send(turn: Turn | undefined, expected: number | undefined): Promise<Call> {
    if (turn !== undefined) {
      return turn.send(this.#request, expected, this.#deadline);
    }
    fill(wire.GenerateRequestSchema, this.#request, { expectedHistoryLength: expected });
    return this.#calls.stream(wire.RuntimeService.method.generate, this.#request, this.#deadline, this.#turnSpan);
  }

  /** What the generation says, if that is what it is; what else a turn says is noted. */
  #heard(response: wire.GenerateResponse | wire.TurnResponse, call: Call): wire.GenerateResponse | undefined {
    if (response.$typeName === wire.GenerateResponseSchema.typeName) {
      return response;
    }
    if (response.event.case === "generated") {
      return response.event.value;
    }
    if (this.#turn !== undefined) {
      if (response.found !== undefined) {
        this.found = foundSession(response.found);
        if (response.event.case !== "session") {
          throw new FoundElsewhere(`the search has come to ${this.found ? "another place" : "nothing"}`);
        }
        this.#turn = this.#turn.found(response.found);
      }
      this.#turn.hear(response, call.span);
      this.#takeFrom(this.#turn);
    }
    return undefined;
  }

  #takeFrom({ session, history, appended, answerStart }: Turn): void {
    this.session = session;
    this.#history = history;
    this.appended = appended;
    this.#request.sessionId = session?.id ?? "";
    fill(wire.GenerateRequestSchema, this.#request, { expectedHistoryLength: answerStart });
  }

  /** The next response of an operation whose stream has broken off, or which may not have begun. */
  async #goOn(error: unknown): Promise<wire.GenerateResponse> {
    if (!(error instanceof Unavailable || error instanceof OperationStopped)) {
      throw error;
    }
    const isSafe = this.#turn === undefined || this.#turn.isRepeatable || this.appended !== null;
    const maxAttempts = this.#calls.options.maxAttempts > 1 && isSafe ? RESUME_ATTEMPTS : 1;
    const retry = new Retry(this.#deadline, { maxAttempts, mayGoOn: true });
    const delaySeconds = retry.delaySeconds(error);
    if (this.#stopped !== undefined || delaySeconds === null) {
      throw error;
    }
    await this.#deadline.sleep(delaySeconds);
    try {
      return await retry.run(() => this.#resume());
    } catch (failure) {
      this.#history.lost(failure);
      throw failure;
    }
  }

  /** Goes on after the tokens that have arrived, if any may have; the first response since. */
  async #resume(): Promise<wire.GenerateResponse> {
    this.#request.resumeTokenIds = [...this.tokenIds];
    return this.#take(await this.#open(undefined));
  }

  async #take(call: Call): Promise<wire.GenerateResponse> {
    let response = this.#first;
    this.#first = undefined;
    while (response === undefined) {
      const said = await call.read();
      if (said === undefined) {
        throw new RpcFailed("the stream ended without a result", { status: "INTERNAL" });
      }
      response = this.#heard(said, call);
    }
    return response;
  }

  #throwIfStopped(): void {
    if (this.#stopped !== undefined) {
      throw this.#stopped;
    }
  }
}
