/** A turn in a session that is opened for it. */

import type * as wire from "../_generated/kakeya/v1/runtime_pb.js";
import type { Span } from "../spans/tracing.js";
import type { Deadline } from "../transport/deadline.js";
import { leavesOperationRunning, type Retry } from "../transport/retry.js";
import type { Calls } from "./calls.js";
import { History } from "./history.js";
import type { Opening } from "./opening.js";
import { Session } from "./session.js";
import { isUnknown, Turn } from "./turn.js";

export class OpeningTurn extends Turn {
  readonly #opening: Opening;
  readonly #checksHistory: boolean;
  #mayBeOpen = false;

  constructor(calls: Calls, opening: Opening, tokenIds: readonly number[], checksHistory: boolean) {
    // Nobody else knows that session, so nothing can have come between two attempts.
    super(calls, new History(calls, "", 0, false), tokenIds, true);
    this.#opening = opening;
    this.#checksHistory = checksHistory;
    this.request.where = { case: "create", value: opening.request };
  }

  override openingDeadline(): Deadline {
    return this.#opening.deadline();
  }

  retry(): Retry {
    return this.#opening.retry({ mayGoOn: true });
  }

  async inParts(deadline: Deadline, parent: Span): Promise<void> {
    const session = this.#isIn(await this.#opening.open(parent));
    await this.appendTo(session, deadline, parent);
  }

  lost(error: unknown): void {
    this.#mayBeOpen ||= leavesOperationRunning(error) && !isUnknown(error);
  }

  /** Closes what nobody can go on with: a session that is unknown, or has nothing in it, or is for this turn. */
  failed(): void {
    const isOfNoUse = this.appended === null || this.#opening.request.ephemeral;
    if (this.session === null ? this.#mayBeOpen : isOfNoUse) {
      this.#opening.giveUp();
    }
  }

  protected expect(): void {
    // A new session begins where it begins.
  }

  protected enter(opened: wire.CreateSessionResponse): void {
    if (this.session?.id !== opened.sessionId) {
      this.#isIn(opened);
    }
  }

  #isIn(opened: wire.CreateSessionResponse): Session {
    this.session = new Session(this.calls, opened.sessionId, this.#checksHistory, opened);
    this.history = this.session.history;
    return this.session;
  }
}
