/**
 * The errors of the SDK: one for each reason a runtime can give, in families that have one status each.
 *
 * `error instanceof KakeyaError` holds for whatever a call can throw. A reason that this version does not know, from a
 * newer runtime, arrives as the family of its status.
 */

import type { ErrorReason } from "./_generated/kakeya/v1/error_reason_pb.js";

/** Names of gRPC's status codes. */
export type Status =
  | "CANCELLED"
  | "UNKNOWN"
  | "INVALID_ARGUMENT"
  | "DEADLINE_EXCEEDED"
  | "NOT_FOUND"
  | "ALREADY_EXISTS"
  | "PERMISSION_DENIED"
  | "RESOURCE_EXHAUSTED"
  | "FAILED_PRECONDITION"
  | "ABORTED"
  | "OUT_OF_RANGE"
  | "UNIMPLEMENTED"
  | "INTERNAL"
  | "UNAVAILABLE"
  | "DATA_LOSS"
  | "UNAUTHENTICATED";

type Reason = keyof typeof ErrorReason | "";

/** What else an error is made of. */
export interface ErrorDetails {
  readonly status?: Status | undefined;
  readonly reason?: string | undefined;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly retryAfterSeconds?: number | undefined;
  readonly traceId?: string | undefined;
  readonly cause?: unknown;
}

/** Base of the tree. */
export class KakeyaError extends Error {
  /** Of the class. */
  static readonly status: Status = "UNKNOWN";
  /** Of the class. */
  static readonly reason: Reason = "";

  /** The gRPC status code, by name. */
  readonly status: Status;
  /** Name of the `ErrorReason` without its prefix; "" where the runtime gave none. */
  readonly reason: string;
  /** For programs, e.g. `field` of an InvalidField. */
  readonly metadata: Readonly<Record<string, string>>;
  /** How long the runtime asks to wait before a retry, in seconds; null if it does not say. */
  readonly retryAfterSeconds: number | null;
  /** Of the trace that the call was part of, in hex; "" where nobody knows it. */
  readonly traceId: string;

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, "cause" in details ? { cause: details.cause } : undefined);
    this.name = new.target.name;
    this.status = details.status ?? new.target.status;
    this.reason = details.reason ?? new.target.reason;
    this.metadata = details.metadata ?? {};
    this.retryAfterSeconds = details.retryAfterSeconds ?? null;
    this.traceId = this.metadata.trace_id ?? details.traceId ?? "";
  }
}

/** Unknown, closed or expired. */
export class SessionNotFound extends KakeyaError {
  static override readonly status: Status = "NOT_FOUND";
  static override readonly reason: Reason = "SESSION_NOT_FOUND";
}

/** Never stored, deleted, expired, or another tenant's. */
export class ObjectNotFound extends KakeyaError {
  static override readonly status: Status = "NOT_FOUND";
  static override readonly reason: Reason = "OBJECT_NOT_FOUND";
}

/** The request can never succeed; the session is unchanged. */
export class InvalidRequest extends KakeyaError {
  static override readonly status: Status = "INVALID_ARGUMENT";
}

/** A value is not acceptable; `metadata.field` names it as the contract does. */
export class InvalidField extends InvalidRequest {
  static override readonly reason: Reason = "INVALID_FIELD";
}

/** A token id is outside the model's vocabulary. */
export class TokenOutOfVocabulary extends InvalidRequest {
  static override readonly reason: Reason = "TOKEN_OUT_OF_VOCABULARY";
}

/** A generation, or a fork, before any append. */
export class EmptyHistory extends InvalidRequest {
  static override readonly reason: Reason = "EMPTY_HISTORY";
}

/** More tokens than one append may carry; send them in several. */
export class AppendTooLong extends InvalidRequest {
  static override readonly reason: Reason = "APPEND_TOO_LONG";
}

/** The session, or the object, is not in the state that the caller believes in. */
export class Conflict extends KakeyaError {
  static override readonly status: Status = "ABORTED";
}

/** Another operation is running on the session. */
export class OperationRunning extends Conflict {
  static override readonly reason: Reason = "OPERATION_RUNNING";
}

/** The history has another length than expected: another caller appended, or an earlier call half succeeded. */
export class HistoryLengthMismatch extends Conflict {
  static override readonly reason: Reason = "HISTORY_LENGTH_MISMATCH";
}

/** The object has another version: another caller changed it. */
export class ObjectChanged extends Conflict {
  static override readonly reason: Reason = "OBJECT_CHANGED";
}

/** What is asked for is used up now; `retryAfterSeconds` says when it is worth another try. */
export class Exhausted extends KakeyaError {
  static override readonly status: Status = "RESOURCE_EXHAUSTED";
}

/** No worker has a free lane now. */
export class NoCapacity extends Exhausted {
  static override readonly reason: Reason = "NO_CAPACITY";
}

/** Your tenant or key has used what it may; `metadata` has the `quota`, its `limit` and the `subject`. */
export class QuotaExceeded extends Exhausted {
  static override readonly reason: Reason = "QUOTA_EXCEEDED";
}

/** Too many calls wait for a lane already. */
export class QueueFull extends Exhausted {
  static override readonly reason: Reason = "QUEUE_FULL";
}

/** No lane came free while the call waited in the runtime's queue. */
export class QueueTimedOut extends Exhausted {
  static override readonly reason: Reason = "QUEUE_TIMED_OUT";
}

/** Too many calls run at once. */
export class TooManyCalls extends Exhausted {
  static override readonly reason: Reason = "TOO_MANY_CALLS";
}

/** The runtime's snapshot store does not answer, and no more is remembered of the session without it. */
export class SnapshotStoreUnavailable extends Exhausted {
  static override readonly reason: Reason = "SNAPSHOT_STORE_UNAVAILABLE";
}

/** The runtime asks for a key (`apiKey` of a client, $KAKEYA_API_KEY) and was given none that is good. */
export class Unauthenticated extends KakeyaError {
  static override readonly status: Status = "UNAUTHENTICATED";
  static override readonly reason: Reason = "UNAUTHENTICATED";
}

/** The key is good, and not for this. */
export class PermissionDenied extends KakeyaError {
  static override readonly status: Status = "PERMISSION_DENIED";
  static override readonly reason: Reason = "PERMISSION_DENIED";
}

/** No key or token has this id. */
export class CredentialNotFound extends KakeyaError {
  static override readonly status: Status = "NOT_FOUND";
  static override readonly reason: Reason = "CREDENTIAL_NOT_FOUND";
}

/** An invariant of the session's cache was violated; the session is failed. */
export class InvariantViolated extends KakeyaError {
  static override readonly status: Status = "FAILED_PRECONDITION";
  static override readonly reason: Reason = "INVARIANT_VIOLATED";
}

/** The tokens do not fit and the session refuses to forget; `metadata.room` says how many would. It is unchanged. */
export class HistoryFull extends KakeyaError {
  static override readonly status: Status = "FAILED_PRECONDITION";
  static override readonly reason: Reason = "HISTORY_FULL";
}

/** A session cannot branch off at this history length; `metadata.reachable` lists those at which it can. */
export class BoundaryNotReachable extends KakeyaError {
  static override readonly status: Status = "FAILED_PRECONDITION";
  static override readonly reason: Reason = "BOUNDARY_NOT_REACHABLE";
}

/** A snapshot of the session is damaged, or gone, or of another model. */
export class SnapshotRefused extends KakeyaError {
  static override readonly status: Status = "FAILED_PRECONDITION";
  static override readonly reason: Reason = "SNAPSHOT_REFUSED";
}

/** Something that the call needs is not there now. */
export class Unavailable extends KakeyaError {
  static override readonly status: Status = "UNAVAILABLE";
}

/** The runtime cannot be reached, or the connection broke; whether the call took effect is unknown. */
export class ConnectionFailed extends Unavailable {}

/** No worker serves the model. */
export class NoWorker extends Unavailable {
  static override readonly reason: Reason = "NO_WORKER";
}

/** The session's worker is gone, and the session with it. */
export class WorkerLost extends Unavailable {
  static override readonly reason: Reason = "WORKER_LOST";
}

/** The router or worker is shutting down. */
export class Draining extends Unavailable {
  static override readonly reason: Reason = "DRAINING";
}

/** The router's store does not answer. */
export class StoreUnavailable extends Unavailable {
  static override readonly reason: Reason = "STORE_UNAVAILABLE";
}

/** The operation was stopped before its end; what was committed stays. */
export class Stopped extends KakeyaError {
  static override readonly status: Status = "CANCELLED";
}

/** The call was cancelled from this side. */
export class Cancelled extends Stopped {}

/** The call was aborted by its `signal`, whose reason is the `cause`. */
export class AbortError extends Cancelled {
  /** Of the generation that was aborted: those that had arrived. They stay in the history. */
  readonly tokenIds: readonly number[];

  constructor(message: string, details: ErrorDetails = {}, tokenIds: readonly number[] = []) {
    super(message, details);
    this.name = "AbortError"; // by which the platform's own are known, whatever became of the class's name
    this.tokenIds = tokenIds;
  }
}

/** The session was closed while the operation ran. */
export class SessionClosed extends Stopped {
  static override readonly reason: Reason = "SESSION_CLOSED";
}

/** The runtime stopped the operation. */
export class OperationStopped extends Stopped {
  static override readonly reason: Reason = "OPERATION_STOPPED";
}

/** The call's timeout passed; what was committed stays. */
export class DeadlineExceeded extends KakeyaError {
  static override readonly status: Status = "DEADLINE_EXCEEDED";
  static override readonly reason: Reason = "DEADLINE_EXCEEDED";
}

/** Unforeseen; `traceId` finds it in the runtime's logs. */
export class Internal extends KakeyaError {
  static override readonly status: Status = "INTERNAL";
  static override readonly reason: Reason = "INTERNAL";
}

/** A failure that the runtime did not explain, e.g. UNIMPLEMENTED of an older one; see `status`. */
export class RpcFailed extends KakeyaError {}

/**
 * The search of a turn has come to a place that the turn was not meant for, or to none: nothing has changed.
 *
 * `found` of the generation says where.
 */
export class FoundElsewhere extends KakeyaError {}

/** A feature was asked for whose optional package is not installed; the message says how to get it. */
export class MissingExtra extends Error {
  constructor(feature: string, packageName: string, cause?: unknown) {
    super(`${feature} needs a package; install it with: npm install ${packageName}`, { cause });
    this.name = new.target.name;
  }
}
