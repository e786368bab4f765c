import { readFileSync } from "node:fs";

import { expect, test } from "vitest";

import { ErrorReason } from "../../src/_generated/kakeya/v1/error_reason_pb.js";
import * as sdk from "../../src/index.js";
import { Client, ConnectionFailed, Exhausted, KakeyaError, RpcFailed } from "../../src/index.js";
import { Refusal, Scripted } from "../support/scripted.js";
import { thrown } from "../support/stack.js";

/** Between services only. */
const INNER = ["UNSPECIFIED", "STALE_EPOCH", "UNKNOWN_INCARNATION", "INCOMPATIBLE_CONTRACT", "WORKER_ID_TAKEN"];
const REASONS = Object.keys(ErrorReason).filter((name) => /^[A-Z]/.test(name) && !INNER.includes(name));
const PROTO = readFileSync(new URL("../../../../proto/kakeya/v1/error_reason.proto", import.meta.url), "utf8");
const STATUSES = new Map(
  [...PROTO.matchAll(/\/\/ ([A-Z_]+)(?:, [a-z ]+ only)?:[^=]*?ERROR_REASON_([A-Z_]+) = /g)].map((found) => [
    found[2],
    found[1] as sdk.Status,
  ]),
);

async function failing(refusal: Refusal): Promise<KakeyaError> {
  await using runtime = await Scripted.start({
    listModels: () => {
      throw refusal;
    },
  });
  await using client = new Client(runtime.address, { maxAttempts: 1 });
  return await thrown(KakeyaError, () => client.listModels());
}

test.each(REASONS)("%s has a class of its own, with the status that the contract says", async (reason) => {
  const status = STATUSES.get(reason) ?? "UNKNOWN";
  const metadata = { field: "a", trace_id: "abc" };
  const error = await failing(new Refusal(status, reason, { metadata, retryAfterSeconds: 1.5 }));
  expect(error).toMatchObject({ status, reason, metadata, retryAfterSeconds: 1.5, traceId: "abc" });
  expect(error.message).toBe(`scripted ${reason}`);
  const classes = Object.values(sdk).filter((each) => (each as { reason?: string }).reason === reason);
  expect(classes).toEqual([error.constructor]);
  expect(error.name).toBe((classes[0] as { name: string }).name);
});

test("a reason that is not known yet comes as the family of its status", async () => {
  expect((await failing(new Refusal("RESOURCE_EXHAUSTED", "NEW"))).constructor).toBe(Exhausted);
  expect((await failing(new Refusal("DATA_LOSS", "NEW"))).constructor).toBe(RpcFailed);
});

test("without details it is gRPC's own, or of something that is no Kakeya", async () => {
  expect(await failing(new Refusal("CANCELLED"))).toBeInstanceOf(ConnectionFailed);
  expect(await failing(new Refusal("UNIMPLEMENTED"))).toMatchObject({ name: "RpcFailed", status: "UNIMPLEMENTED" });
  const broken = new Refusal("INTERNAL", "", { trailer: Buffer.from([255, 255]) });
  expect(await failing(broken)).toMatchObject({ name: "RpcFailed", status: "INTERNAL", metadata: {}, traceId: "" });
});

test("one without anything is of its class", () => {
  expect(new sdk.NoWorker("none")).toMatchObject({
    status: "UNAVAILABLE",
    reason: "NO_WORKER",
    metadata: {},
    retryAfterSeconds: null,
  });
  expect(new sdk.AbortError("left").tokenIds).toEqual([]);
});
