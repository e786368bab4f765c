/** gRPC's errors, made into the SDK's. */

import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack, type Duration } from "@bufbuild/protobuf/wkt";
import { status as codes, type ServiceError } from "@grpc/grpc-js";

import { ErrorInfoSchema, RetryInfoSchema, type ErrorInfo } from "../_generated/google/rpc/error_details_pb.js";
import { StatusSchema, type Status as RpcStatus } from "../_generated/google/rpc/status_pb.js";
import * as errors from "../errors.js";
import { proxyVariable } from "./proxy.js";

const DOMAIN = "kakeya";
const DETAILS_KEY = "grpc-status-details-bin";

type ErrorClass = new (message: string, details?: errors.ErrorDetails) => errors.KakeyaError;
const CLASSES = Object.values(errors).filter((each) => each.prototype instanceof errors.KakeyaError);
const BY_REASON = new Map<string, ErrorClass>();
const BY_STATUS = new Map<errors.Status, ErrorClass>();
for (const each of CLASSES as (typeof errors.KakeyaError)[]) {
  if (Object.hasOwn(each, "reason")) {
    BY_REASON.set(each.reason, each);
  } else if (Object.hasOwn(each, "status")) {
    BY_STATUS.set(each.status, each);
  }
}

// Statuses that gRPC itself gives a call; any other without details comes from something that is no Kakeya.
const WITHOUT_DETAILS = new Map<errors.Status, ErrorClass>([
  ["UNAVAILABLE", errors.ConnectionFailed],
  ["DEADLINE_EXCEEDED", errors.DeadlineExceeded],
  // A server that shuts down resets calls that come in the same moment. A runtime that ends one says why.
  ["CANCELLED", errors.ConnectionFailed],
]);

/**
 * The error that a failed call to an address stands for: by the runtime's reason, else by the status.
 *
 * @param traceId - of the call's span, "" for none.
 */
export function translate(error: ServiceError, address: string, traceId: string): errors.KakeyaError {
  const status = codes[error.code] as errors.Status;
  const { info, retryAfterSeconds } = detailsOf(error);
  const kind = kindOf(status, info?.reason ?? "");
  const proxy = kind === errors.ConnectionFailed ? proxyVariable(address) : "";
  return new kind(error.details + (proxy && ` (through the proxy of $${proxy})`), {
    status,
    traceId,
    retryAfterSeconds,
    ...(info && { reason: info.reason, metadata: info.metadata }),
    cause: error,
  });
}

function kindOf(status: errors.Status, reason: string): ErrorClass {
  if (reason === "") {
    return WITHOUT_DETAILS.get(status) ?? errors.RpcFailed;
  }
  return BY_REASON.get(reason) ?? BY_STATUS.get(status) ?? errors.RpcFailed;
}

function detailsOf(error: ServiceError): { info?: ErrorInfo; retryAfterSeconds?: number } {
  const found: { info?: ErrorInfo; retryAfterSeconds?: number } = {};
  for (const detail of statusOf(error)?.details ?? []) {
    const info = anyUnpack(detail, ErrorInfoSchema);
    if (info?.domain === DOMAIN) {
      found.info = info;
    }
    const delay = anyUnpack(detail, RetryInfoSchema)?.retryDelay;
    if (delay) {
      found.retryAfterSeconds = seconds(delay);
    }
  }
  return found;
}

function statusOf(error: ServiceError): RpcStatus | undefined {
  const [value] = error.metadata.get(DETAILS_KEY);
  try {
    return value instanceof Buffer ? fromBinary(StatusSchema, value) : undefined;
  } catch {
    return undefined; // the status itself still tells something
  }
}

function seconds(duration: Duration): number {
  return Number(duration.seconds) + duration.nanos / 1e9;
}
