import { afterEach, beforeEach, expect, test, vi } from "vitest";

import * as sdk from "../../src/index.js";
import { Deadline, now } from "../../src/transport/deadline.js";
import { leavesOperationRunning, Retry } from "../../src/transport/retry.js";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance"] });
});
afterEach(() => {
  vi.useRealTimers();
});

const unavailable = new sdk.ConnectionFailed("away");

function delays(retry: Retry, error: Error, number: number): boolean[] {
  return Array.from({ length: number }, () => retry.delaySeconds(error) !== null);
}

test("UNAVAILABLE is met so many times, longer and longer apart", () => {
  const retry = new Retry(new Deadline(Infinity), { maxAttempts: 4 });
  const [first, second, third] = [1, 2, 3].map(() => retry.delaySeconds(unavailable) ?? NaN);
  expect(first).toBeLessThanOrEqual(0.1);
  expect(second).toBeGreaterThanOrEqual(0.1);
  expect(third).toBeLessThanOrEqual(0.4);
  expect(retry.delaySeconds(unavailable)).toBeNull();
});

test("what is not safe, not ours, or over is not tried again", () => {
  expect(delays(new Retry(new Deadline(Infinity)), unavailable, 1)).toEqual([false]);
  const retry = (): Retry => new Retry(new Deadline(Infinity), { maxAttempts: 9 });
  for (const error of [
    new sdk.WorkerLost("gone"),
    new sdk.InvalidField("bad"),
    new Error("foreign"),
    new sdk.NoCapacity("full"),
  ]) {
    expect(retry().delaySeconds(error)).toBeNull();
  }
  expect(new Retry(new Deadline(0.01), { maxAttempts: 9 }).delaySeconds(unavailable)).toBeNull();
  expect(retry().delaySeconds(new sdk.TooManyCalls("busy"))).not.toBeNull();
});

test("what is used up is waited out for as long as that was asked for, and as late as the runtime says", () => {
  const retry = new Retry(new Deadline(Infinity), { waitForCapacitySeconds: 10 });
  const full = new sdk.NoCapacity("full", { retryAfterSeconds: 3 });
  expect(retry.delaySeconds(full)).toBeGreaterThan(3);
  vi.advanceTimersByTime(8000);
  expect(retry.delaySeconds(full)).toBeNull();
});

test("a conflict is put down to an operation of ours while that is being stopped", () => {
  const running = new sdk.OperationRunning("busy");
  const moved = new sdk.HistoryLengthMismatch("moved");
  const retry = new Retry(new Deadline(Infinity));
  expect([retry.delaySeconds(running), retry.delaySeconds(moved)]).toEqual([null, null]);
  retry.settlingUntil(now() + 5);
  expect(retry.delaySeconds(running)).not.toBeNull();
  expect(retry.delaySeconds(moved)).not.toBeNull();
  retry.effectIsUnknown();
  expect(retry.delaySeconds(moved)).toBeNull();
  vi.advanceTimersByTime(6000); // a router that vanished has held it until now
  expect(retry.delaySeconds(running)).not.toBeNull();
  vi.advanceTimersByTime(5000);
  expect(retry.delaySeconds(running)).toBeNull();
});

test("an operation that was stopped by nobody's wish goes on, but not one that nobody reads", () => {
  const stopped = new sdk.OperationStopped("stopped");
  const options = { maxAttempts: 3, mayGoOn: true };
  expect(delays(new Retry(new Deadline(Infinity), options), stopped, 3)).toEqual([true, true, false]);
  expect(new Retry(new Deadline(Infinity), { maxAttempts: 3 }).delaySeconds(stopped)).toBeNull();
  const unread = new sdk.OperationStopped("unread", { metadata: { cause: "unread" } });
  expect(new Retry(new Deadline(Infinity), options).delaySeconds(unread)).toBeNull();
});

test("which ends leave an operation running", () => {
  const leaves = [unavailable, new sdk.Cancelled("c"), new sdk.AbortError("a"), new sdk.DeadlineExceeded("d")];
  expect([...leaves, new sdk.RpcFailed("r"), new Error("e")].every(leavesOperationRunning)).toBe(true);
  expect([new sdk.NoWorker("n"), new sdk.SessionClosed("s")].some(leavesOperationRunning)).toBe(false);
});
