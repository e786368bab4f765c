import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";

import { WatchResponseSchema, type WatchResponse } from "../../src/_generated/kakeya/admin/v1/admin_pb.js";
import { Client, ConnectionFailed, Unauthenticated } from "../../src/index.js";
import { Refusal, Scripted } from "../support/scripted.js";
import { thrown } from "../support/stack.js";

function says(...events: (number | Refusal)[]) {
  return async function* (): AsyncGenerator<WatchResponse, void> {
    for (const event of events) {
      if (event instanceof Refusal) {
        throw event;
      }
      yield await Promise.resolve(create(WatchResponseSchema, { at: event, begins: true }));
    }
  };
}

const BROKEN = new Refusal("UNAVAILABLE");

test("a watch whose connection breaks begins anew, and ends when the runtime ends it", async () => {
  await using runtime = await Scripted.start({ watch: [says(1, BROKEN), says(BROKEN), says(2, 3)] });
  await using client = new Client(runtime.address);
  const seen = [];
  for await (const { at } of client.watch()) {
    seen.push(at);
  }
  expect(seen).toEqual([1, 2, 3]);
});

test("it gives up after so many attempts in a row, and at once where it is refused", async () => {
  await using runtime = await Scripted.start({
    watch: [says(new Refusal("UNAUTHENTICATED", "UNAUTHENTICATED")), says(BROKEN)],
  });
  await using client = new Client(runtime.address, { maxAttempts: 2 });
  await thrown(Unauthenticated, () => client.watch().next());
  await thrown(ConnectionFailed, () => client.watch().next());
  expect(runtime.came).toHaveLength(3);
});
