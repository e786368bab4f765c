/** A turn whose session is looked for by tags, in the same call. */

import { randomBytes } from "node:crypto";

import { create } from "@bufbuild/protobuf";

import * as wire from "../_generated/kakeya/v1/runtime_pb.js";
import { RpcFailed } from "../errors.js";
import { number64 } from "../results/number64.js";
import type { Deadline } from "../transport/deadline.js";
import { fill, invalid, tagList } from "../transport/fields.js";
import { leavesOperationRunning, Retry } from "../transport/retry.js";
import type { Calls } from "./calls.js";
import { History } from "./history.js";
import type { Opening } from "./opening.js";
import { OpeningTurn } from "./opening-turn.js";
import { PlaceTurn, type PlaceTurnOptions } from "./place-turn.js";
import { isUnknown, Turn } from "./turn.js";

const TOO_OLD = "the runtime is of an older version, and does not look for the session of a turn";

export interface SearchOptions extends PlaceTurnOptions {
  /** Of the session. */
  readonly model: string | undefined;
  /** By the index of its tag, how many of the tokens lie before a place. */
  readonly expected: ReadonlyMap<number, number>;
  /** Of the session that it is in where nothing is found; undefined: then it is nowhere. */
  readonly opens: Opening | undefined;
}

/** A turn until its search has told where it is; from then on it is a turn of that kind. */
export class SearchTurn extends Turn {
  readonly #options: SearchOptions;
  readonly #forkId = randomBytes(16).toString("hex");
  #mayBeThere = false;

  /**
   * @throws InvalidField a value does not fit its field.
   */
  constructor(calls: Calls, tags: Iterable<Uint8Array>, tokenIds: readonly number[], options: SearchOptions) {
    super(calls, new History(calls, "", 0, false), tokenIds, true);
    this.#options = options;
    const expected = [...options.expected].map(([tagIndex, skippedTokenCount]) =>
      fill(wire.ExpectedPlaceSchema, create(wire.ExpectedPlaceSchema), { tagIndex, skippedTokenCount }),
    );
    const search = create(wire.TurnSearchSchema, { tags: tagList(tags), requestId: this.#forkId, expected });
    this.request.search = fill(wire.TurnSearchSchema, search, { model: options.model });
    if (Math.max(0, ...options.expected.values()) > tokenIds.length) {
      throw invalid("expected", "more tokens than there are");
    }
    if (options.opens) {
      this.request.where = { case: "create", value: options.opens.request };
    }
  }

  override found = (found: wire.FindSessionResponse): Turn => {
    const { opens, expected, checksHistory, opening } = this.#options;
    const numSkipped = expected.get(found.tagIndex) ?? 0;
    const place = number64(found.place?.historyLength ?? 0n);
    const turn =
      opens && found.sessionId === ""
        ? new OpeningTurn(this.calls, opens, this.tokenIds, checksHistory)
        : new PlaceTurn(this.calls, found.sessionId, place, this.tokenIds.slice(numSkipped), {
            checksHistory,
            opening,
            forkId: this.#forkId,
          });
    turn.request.startTags = this.request.startTags;
    return turn;
  };

  override openingDeadline(): Deadline {
    return this.#options.opens?.deadline() ?? this.calls.deadline(this.#options.opening);
  }

  retry(): Retry {
    const retry = this.#options.opens?.retry({ mayGoOn: true });
    return retry ?? new Retry(this.openingDeadline(), { maxAttempts: this.calls.options.maxAttempts, mayGoOn: true });
  }

  inParts(): Promise<never> {
    return Promise.reject(new RpcFailed(TOO_OLD, { status: "UNIMPLEMENTED" }));
  }

  lost(error: unknown): void {
    this.#mayBeThere ||= leavesOperationRunning(error) && !isUnknown(error);
  }

  /** Closes what an attempt has made of which nothing was heard. */
  failed(): void {
    if (this.#mayBeThere) {
      this.calls.giveUp(this.#forkId);
      this.#options.opens?.giveUp();
    }
  }

  protected expect(): void {
    // The search says where it begins.
  }

  /** A runtime that passes over the search has opened a session without it. */
  protected enter(): void {
    this.#mayBeThere = true;
    throw new RpcFailed(TOO_OLD, { status: "FAILED_PRECONDITION" });
  }
}
