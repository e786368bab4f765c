/** A session that is to be opened, however often that is tried: its request's id gets the same one again. */

import { randomBytes } from "node:crypto";

import { create } from "@bufbuild/protobuf";

import * as wire from "../_generated/kakeya/v1/runtime_pb.js";
import { RpcFailed } from "../errors.js";
import { overflowPolicyToWire } from "../results/sessions.js";
import type { Span } from "../spans/tracing.js";
import type { Deadline } from "../transport/deadline.js";
import { fill, invalid, tokenList } from "../transport/fields.js";
import { leavesOperationRunning, Retry, type RetryOptions } from "../transport/retry.js";
import type { Calls } from "./calls.js";
import type { CallOptions, CreateSessionOptions } from "./options.js";

const { method } = wire.RuntimeService;

export class Opening {
  readonly request: wire.CreateSessionRequest;

  readonly #calls: Calls;
  readonly #isShared: boolean;
  readonly #waitForCapacitySeconds: number;
  readonly #call: CallOptions;
  #settleUntil = 0;

  /**
   * @throws InvalidField a value does not fit its field.
   */
  constructor(calls: Calls, options: CreateSessionOptions) {
    const {
      eosTokenIds = [],
      label,
      onOverflow,
      forkFrom,
      boundary,
      requestId,
      timeoutSeconds,
      signal,
      ...rest
    } = options;
    const { waitForCapacitySeconds = 0, ...fields } = rest;
    this.#calls = calls;
    this.#isShared = requestId !== undefined;
    this.#waitForCapacitySeconds = waitForCapacitySeconds;
    this.#call = { timeoutSeconds, signal };
    this.request = create(wire.CreateSessionRequestSchema, { eosTokenIds: tokenList(eosTokenIds, "eos_token_ids") });
    fill(wire.CreateSessionRequestSchema, this.request, {
      clientLabel: label,
      onOverflow: onOverflow && overflowPolicyToWire(onOverflow),
      requestId: requestId ?? randomBytes(16).toString("hex"),
      ...fields,
    });
    this.#branchOff(forkFrom, boundary);
  }

  /** Of an attempt that begins now. */
  deadline(): Deadline {
    return this.#calls.deadline(this.#call, this.#waitForCapacitySeconds);
  }

  /** Beginning now. */
  retry(options: RetryOptions = {}): Retry {
    const { maxAttempts } = this.#calls.options;
    const waitForCapacitySeconds = this.#waitForCapacitySeconds;
    const retry = new Retry(this.deadline(), { maxAttempts, waitForCapacitySeconds, ...options });
    retry.settlingUntil(this.#settleUntil);
    return retry;
  }

  /**
   * Opens it by a call of its own; where no answer comes, it is closed if it is there.
   *
   * @throws KakeyaError
   */
  async open(parent?: Span): Promise<wire.CreateSessionResponse> {
    const retry = this.retry();
    try {
      const opened = await retry.run(async () => {
        try {
          return await this.#calls.unary(method.createSession, this.request, retry.deadline, parent);
        } catch (error) {
          retry.mayHaveTakenEffect ||= leavesOperationRunning(error);
          throw error;
        }
      });
      await this.#checkHasBranchedOff(opened);
      return opened;
    } catch (error) {
      if (retry.mayHaveTakenEffect) {
        this.giveUp();
      }
      throw error;
    }
  }

  /** Has the session closed in the background, if there is one, and it cannot be another call's as well. */
  giveUp(): void {
    if (!this.#isShared) {
      this.#calls.giveUp(this.request.requestId);
    }
  }

  #branchOff(source: CreateSessionOptions["forkFrom"], boundary: number | undefined): void {
    if (source === undefined) {
      if (boundary !== undefined) {
        throw invalid("boundary", "of no session; there is no forkFrom");
      }
      return;
    }
    const point = create(wire.ForkPointSchema);
    if (typeof source === "string") {
      fill(wire.ForkPointSchema, point, { sessionId: source, boundary });
    } else {
      this.#settleUntil = source.history.settleUntil;
      fill(wire.ForkPointSchema, point, { sessionId: source.id, boundary: boundary ?? source.history.expected });
    }
    this.request.forkFrom = point;
  }

  /** A runtime that does not know `fork_from` opens an empty session, which is of no use. */
  async #checkHasBranchedOff(opened: wire.CreateSessionResponse): Promise<void> {
    const { forkFrom } = this.request;
    if (forkFrom === undefined) {
      return;
    }
    const hasBranchedOff =
      forkFrom.boundary === undefined ? opened.historyLength > 0n : opened.historyLength === forkFrom.boundary;
    if (!hasBranchedOff) {
      const request = create(wire.CloseSessionRequestSchema, { sessionId: opened.sessionId });
      await this.#calls.repeated(method.closeSession, request, this.#call);
      const message = "the runtime is of an older version, and cannot fork";
      throw new RpcFailed(message, { status: "UNIMPLEMENTED" });
    }
  }
}
