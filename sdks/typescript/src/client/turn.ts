/** Turns in a session that is there, and what turns have in common: a generation that appends first. */

import { clone, create } from "@bufbuild/protobuf";

import * as wire from "../_generated/kakeya/v1/runtime_pb.js";
import { RpcFailed } from "../errors.js";
import { appendResult, type AppendResult } from "../results/turns.js";
import type { Span } from "../spans/tracing.js";
import { Deadline } from "../transport/deadline.js";
import { fill } from "../transport/fields.js";
import { Retry } from "../transport/retry.js";
import type { Calls, StreamCall } from "./calls.js";
import type { History } from "./history.js";
import type { Session } from "./session.js";

/** How a generation begins that appends tokens first. */
export abstract class Turn {
  /** That it is in; null until the runtime has said it. */
  session: Session | null = null;
  /** What the append has answered; null until then. */
  appended: AppendResult | null = null;
  /** The history length at which its Generate is gone on with; undefined: the history knows. */
  answerStart: bigint | undefined;
  /** The same one is sent until the tokens are known to be appended. */
  readonly request: wire.TurnRequest;

  /**
   * @param history - of that session.
   * @param isRepeatable - the runtime can tell whether a Turn that got lost has taken place.
   */
  constructor(
    protected readonly calls: Calls,
    public history: History,
    protected readonly tokenIds: readonly number[],
    readonly isRepeatable: boolean,
  ) {
    this.request = create(wire.TurnRequestSchema, { spans: [{ tokenIds: [...tokenIds] }] });
  }

  /** Starts the Turn; where no history length is expected, that of the attempt before is. */
  async send(
    generate: wire.GenerateRequest,
    expected: number | undefined,
    deadline: Deadline,
  ): Promise<StreamCall<wire.TurnResponse>> {
    this.request.generate ??= Object.assign(clone(wire.GenerateRequestSchema, generate), { sessionId: "" });
    this.expect(expected);
    const call = await this.calls.stream(wire.RuntimeService.method.turn, this.request, deadline);
    this.request.spans.forEach((span) => {
      call.span.describe(span);
    });
    return call;
  }

  /** What comes before what is generated; an event that this version does not know is passed over. */
  hear({ event }: wire.TurnResponse, span: Span): void {
    if (event.case === "session") {
      span.describe(event.value);
      this.enter(event.value);
    } else if (event.case === "appended") {
      span.describe(event.value);
      this.appended = appendResult(event.value);
      this.answerStart = event.value.historyLength;
    }
  }

  /** How it goes on once its search has come to this: of one without a search as it is. */
  found: (found: wire.FindSessionResponse) => Turn = () => this;

  /** Until when a Turn that is sent now must have its session; it may take longer for the rest. */
  openingDeadline(): Deadline {
    return new Deadline(Infinity);
  }

  /**
   * When it is sent again until its session is there.
   *
   * @param deadline - of the whole turn.
   */
  abstract retry(deadline: Deadline): Retry;

  /**
   * Appends by a call of its own, to a runtime of a version without Turn.
   *
   * @throws KakeyaError
   */
  abstract inParts(deadline: Deadline, parent: Span): Promise<void>;

  /** An attempt to begin it ended so. */
  abstract lost(error: unknown): void;

  /** It did not come to its end. */
  abstract failed(): void;

  /** The history length that it begins at. */
  protected abstract expect(historyLength: number | undefined): void;

  /** The runtime says which session it is in. */
  protected abstract enter(opened: wire.CreateSessionResponse): void;

  protected async appendTo(session: Session, { remainingSeconds, signal }: Deadline, parent: Span): Promise<void> {
    this.appended = await session.appendIn(this.tokenIds, { timeoutSeconds: remainingSeconds, signal }, parent);
  }
}

/** Whether a Turn failed so because the runtime is of a version without it. */
export function isUnknown(error: unknown): boolean {
  return error instanceof RpcFailed && error.status === "UNIMPLEMENTED";
}

/** A turn in a session that is there. */
export class SessionTurn extends Turn {
  readonly #session: Session;
  readonly #place: wire.TurnPlace;
  readonly #maxAttempts: number;

  /**
   * @param maxAttempts - of its beginning; 1 where nothing can tell whether it took place.
   */
  constructor(calls: Calls, session: Session, tokenIds: readonly number[], maxAttempts: number) {
    super(calls, session.history, tokenIds, maxAttempts > 1);
    this.session = this.#session = session;
    this.#maxAttempts = maxAttempts;
    this.#place = create(wire.TurnPlaceSchema, { sessionId: session.id });
    this.request.where = { case: "session", value: this.#place };
  }

  retry(deadline: Deadline): Retry {
    return new Retry(deadline, { maxAttempts: this.#maxAttempts, mayGoOn: true });
  }

  async inParts(deadline: Deadline, parent: Span): Promise<void> {
    await this.appendTo(this.#session, deadline, parent);
  }

  lost(): void {
    // The history knows.
  }

  failed(): void {
    // The session is the caller's.
  }

  protected enter(): void {
    // It is in that session anyway: without a boundary none is forked.
  }

  protected expect(expectedHistoryLength: number | undefined): void {
    fill(wire.TurnPlaceSchema, this.#place, { expectedHistoryLength });
  }
}
