/** A turn at a place of a session: in the session itself where it is idle there, else in a fork of it. */

import { randomBytes } from "node:crypto";

import { create } from "@bufbuild/protobuf";

import * as wire from "../_generated/kakeya/v1/runtime_pb.js";
import { RpcFailed } from "../errors.js";
import type { Deadline } from "../transport/deadline.js";
import { fill } from "../transport/fields.js";
import { leavesOperationRunning, Retry } from "../transport/retry.js";
import type { Calls } from "./calls.js";
import { History } from "./history.js";
import type { CallOptions } from "./options.js";
import { Session } from "./session.js";
import { isUnknown, Turn } from "./turn.js";

export interface PlaceTurnOptions {
  readonly checksHistory: boolean;
  /** Until the session is there. */
  readonly opening: CallOptions;
  /** Request id of the fork, where an earlier request has named it. */
  readonly forkId?: string;
}

export class PlaceTurn extends Turn {
  readonly #sourceId: string;
  readonly #options: PlaceTurnOptions;
  readonly #forkId: string;
  #mayBeForked = false;

  /**
   * @throws InvalidField a value does not fit its field.
   */
  constructor(
    calls: Calls,
    sessionId: string,
    boundary: number,
    tokenIds: readonly number[],
    options: PlaceTurnOptions,
  ) {
    // The runtime itself checks where it begins: nothing is to be read before.
    super(calls, new History(calls, sessionId, boundary, false), tokenIds, true);
    this.#sourceId = sessionId;
    this.#options = options;
    this.#forkId = options.forkId ?? randomBytes(16).toString("hex");
    const place = create(wire.TurnPlaceSchema);
    fill(wire.TurnPlaceSchema, place, { sessionId, boundary, requestId: this.#forkId });
    this.request.where = { case: "session", value: place };
  }

  override openingDeadline(): Deadline {
    return this.calls.deadline(this.#options.opening);
  }

  retry(): Retry {
    return new Retry(this.openingDeadline(), { maxAttempts: this.calls.options.maxAttempts, mayGoOn: true });
  }

  inParts(): Promise<never> {
    const message = "the runtime is of an older version, and has no turns at a place";
    return Promise.reject(new RpcFailed(message, { status: "UNIMPLEMENTED" }));
  }

  lost(error: unknown): void {
    this.#mayBeForked ||= leavesOperationRunning(error) && !isUnknown(error);
  }

  /** Closes a fork that nobody knows of, or that has nothing new in it; never the session with the place. */
  failed(): void {
    const isEmptyFork = this.session !== null && this.session.id !== this.#sourceId && this.appended === null;
    if (isEmptyFork || (this.session === null && this.#mayBeForked)) {
      this.calls.giveUp(this.#forkId);
    }
  }

  protected expect(): void {
    // The boundary says it.
  }

  protected enter(opened: wire.CreateSessionResponse): void {
    if (this.session?.id !== opened.sessionId) {
      this.session = new Session(this.calls, opened.sessionId, this.#options.checksHistory, opened);
      this.history = this.session.history;
    }
  }
}
