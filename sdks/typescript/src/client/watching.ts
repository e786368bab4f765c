/** Watching a runtime: what runs on it, from now on. */

import { create } from "@bufbuild/protobuf";

import { AdminService, WatchRequestSchema } from "../_generated/kakeya/admin/v1/admin_pb.js";
import { Cancelled } from "../errors.js";
import { watchEvent, type WatchEvent } from "../results/watched.js";
import { Deadline, onAbort } from "../transport/deadline.js";
import { fill } from "../transport/fields.js";
import { Retry } from "../transport/retry.js";
import type { Calls } from "./calls.js";
import type { WatchOptions } from "./options.js";

/** As `watch` of a client. */
export async function* watch(
  calls: Calls,
  { intervalSeconds, signal }: WatchOptions,
): AsyncGenerator<WatchEvent, void> {
  const request = fill(WatchRequestSchema, create(WatchRequestSchema), { intervalSeconds });
  const deadline = new Deadline(Infinity, signal);
  let retry: Retry | undefined;
  for (;;) {
    deadline.throwIfAborted();
    const call = await calls.stream(AdminService.method.watch, request, deadline);
    const leave = onAbort(signal, (error) => {
      call.cancel(error);
    });
    try {
      for (let response = await call.read(); response !== undefined; response = await call.read()) {
        retry = undefined;
        yield watchEvent(response);
      }
      return;
    } catch (error) {
      retry ??= new Retry(deadline, { maxAttempts: calls.options.maxAttempts });
      const delaySeconds = retry.delaySeconds(error);
      if (delaySeconds === null) {
        throw error;
      }
      await deadline.sleep(delaySeconds);
    } finally {
      leave();
      call.cancel(new Cancelled("nobody watches any more"));
    }
  }
}
