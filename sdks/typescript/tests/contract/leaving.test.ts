import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { AbortError, Cancelled, Client, DeadlineExceeded, OperationRunning, SessionClosed } from "../../src/index.js";
import { plainStack, range, thrown } from "../support/stack.js";

const ENDLESS = { maxTokens: 65_536, ignoreEos: true };
let client: Client;

beforeAll(async () => {
  client = new Client((await plainStack()).address);
});
afterAll(() => client.close());

const pause = (seconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

describe.concurrent("leaving a loop stops the worker", () => {
  test.each(["break", "return", "throw"])("by %s", async (how) => {
    await using session = await client.createSession();
    await session.append([1, 2, 3]);
    const generation = session.generate(ENDLESS);
    const seen: number[] = [];
    const leave = async (): Promise<void> => {
      for await (const tokenId of generation) {
        seen.push(tokenId);
        if (seen.length === 3) {
          if (how === "return") {
            return;
          }
          if (how === "throw") {
            throw new Error("left");
          }
          break;
        }
      }
    };
    await leave().catch(() => undefined);
    await session.append([]); // waits until the operation has ended
    const { historyLength } = await session.info();
    await pause(0.2);
    expect((await session.info()).historyLength).toBe(historyLength);
    expect(generation.done).toBeNull();
    await thrown(Cancelled, () => generation.nextToken());
    // It goes on from there.
    expect(await session.generate({ maxTokens: 2 }).all()).toHaveLength(2);
  });

  test("by `await using`", async () => {
    await using session = await client.createSession();
    await session.append([1]);
    {
      await using generation = session.generate(ENDLESS);
      expect(await generation.nextToken()).toBeTypeOf("number");
    }
    expect(await session.generate({ maxTokens: 1 }).all()).toHaveLength(1);
  });

  test("at its end nothing happens", async () => {
    await using session = await client.createSession();
    const generation = session.turn([1], { maxTokens: 2 });
    expect(await generation.all()).toHaveLength(2);
    generation.cancel();
    expect(await generation.nextToken()).toBeNull();
    expect(generation.done?.stopReason).toBe("max_tokens");
  });

  test("before its begin nothing is sent", async () => {
    await using session = await client.createSession();
    const generation = session.turn([1], { maxTokens: 2 });
    generation.cancel();
    await thrown(Cancelled, () => generation.all());
    expect((await session.info()).historyLength).toBe(0);
  });
});

describe.concurrent("a signal", () => {
  test("ends a loop with an AbortError that has the tokens", async () => {
    await using session = await client.createSession();
    const controller = new AbortController();
    const generation = session.turn([1, 2, 3], { ...ENDLESS, signal: controller.signal });
    const seen: number[] = [];
    const error = await thrown(AbortError, async () => {
      for await (const tokenId of generation) {
        seen.push(tokenId);
        if (seen.length === 5) {
          controller.abort(new Error("enough"));
        }
      }
    });
    expect(error.tokenIds).toEqual(seen);
    expect(seen).toHaveLength(5);
    expect(error).toMatchObject({ name: "AbortError", status: "CANCELLED", cause: new Error("enough") });
    await session.append([]);
    expect((await session.info()).historyLength).toBeGreaterThanOrEqual(8);
  });

  test("ends whatever is waited for", async () => {
    await using session = await client.createSession();
    await session.append([1, 2, 3]);
    await using busy = session.generate(ENDLESS);
    await busy.nextToken();
    const aborted = AbortSignal.abort("before");
    await thrown(AbortError, () => client.createSession({ signal: aborted }));
    await thrown(AbortError, () => client.listModels({ signal: aborted }));
    await thrown(AbortError, () => session.info({ signal: aborted }));
    await thrown(AbortError, () => session.append([1], { signal: aborted }));
    await thrown(AbortError, () => session.turn([1], { maxTokens: 1, signal: aborted }).all());
    await thrown(AbortError, () => client.turn([1], { maxTokens: 1, signal: aborted }).all());
    await thrown(AbortError, () => client.listSessions({ signal: aborted }).next());
    await thrown(AbortError, () => client.watch({ signal: aborted }).next());
    await thrown(AbortError, () => client.admin.listWorkers({ signal: aborted }));
  });

  test("ends a call that is under way, and what it left behind does not stay in the way", async () => {
    await using session = await client.createSession();
    await session.append([1, 2, 3]);
    const controller = new AbortController();
    const appending = session.append(
      range(8_000).map((id) => id % 1000),
      { signal: controller.signal },
    );
    setTimeout(() => {
      controller.abort();
    }, 30);
    await thrown(AbortError, () => appending);
    expect(session.historyLength).toBeNull();
    await session.append([]);
    expect(await session.generate({ maxTokens: 1 }).all()).toHaveLength(1);
  });

  test("ends a watch", async () => {
    const controller = new AbortController();
    await thrown(AbortError, async () => {
      for await (const event of client.watch({ signal: controller.signal })) {
        expect(event.at).toBeGreaterThan(0);
        controller.abort();
      }
    });
  });
});

describe.concurrent("deadlines", () => {
  test("end a generation, and what was committed stays", async () => {
    await using session = await client.createSession();
    await session.append([1, 2, 3]);
    const generation = session.generate({ ...ENDLESS, timeoutSeconds: 0.3 });
    await thrown(DeadlineExceeded, () => generation.all());
    await session.append([]);
    expect((await session.info()).historyLength).toBeGreaterThan(3);
  });

  test("end a call of fixed work", async () => {
    await thrown(DeadlineExceeded, () => client.listModels({ timeoutSeconds: 0 }));
  });
});

test.concurrent("a second operation is refused, and close wins over a running one", async () => {
  const session = await client.createSession();
  await session.append([1, 2, 3]);
  const generation = session.generate(ENDLESS);
  await generation.nextToken();
  await thrown(OperationRunning, () => client.session(session.id).append([4]));
  const closed = session.close();
  await thrown(SessionClosed, () => generation.all());
  expect(await closed).toBeGreaterThan(3);
});

test.concurrent("who does not read has its row pause, and misses nothing", async () => {
  await using undisturbed = await client.createSession();
  const expected = await undisturbed.turn([1, 2, 3], { maxTokens: 1_000 }).all();
  await using session = await client.createSession();
  await session.append([1, 2, 3]);
  await using generation = session.generate(ENDLESS);
  const tokenIds = [await generation.nextToken()];
  let before = -1;
  let { historyLength } = await session.info();
  while (historyLength !== before) {
    before = historyLength;
    await pause(0.5);
    ({ historyLength } = await session.info());
  }
  expect(historyLength).toBeLessThan(10_000); // what node itself takes in of a stream, 64 KB, whatever is left of 65,536
  while (tokenIds.length < 1_000) {
    tokenIds.push(await generation.nextToken());
  }
  expect(tokenIds).toEqual(expected);
});

test.concurrent("a client that is closed has no calls, and ends those that run", async () => {
  const other = new Client((await plainStack()).address);
  const session = await other.createSession();
  await session.append([1]);
  const generation = session.generate(ENDLESS);
  await generation.nextToken();
  const waiting = thrown(Cancelled, () => generation.all());
  await other.close();
  await waiting;
  await expect(session.info()).rejects.toThrow("the client is closed");
  await client.session(session.id).close();
});
