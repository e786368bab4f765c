import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { Client, EmptyHistory, InvalidField, KakeyaError, SessionNotFound, type Session } from "../../src/index.js";
import { eventually, plainStack, range, thrown, type Stack } from "../support/stack.js";

const LONG = range(120); // longer than the 68 tokens that a session keeps
let stack: Stack;
let client: Client;

beforeAll(async () => {
  stack = await plainStack();
  client = new Client(stack.address);
});
afterAll(() => client.close());

async function closing<T>(work: (session: Session) => Promise<T>): Promise<T> {
  await using session = await client.createSession();
  return await work(session);
}

test("runs on the runtime that it is said to run on", () => {
  const { node, bun, deno } = process.versions as Readonly<Record<string, string | undefined>>;
  const name = bun ? "bun" : deno ? "deno" : `node-${parseInt(node ?? "")}`;
  expect(name).toBe(process.env.KAKEYA_TEST_RUNTIME ?? name);
});

describe.concurrent("a session", () => {
  test("the example of the issue", async () => {
    const session = await client.createSession();
    await session.append(range(5));
    const tokenIds = [];
    for await (const tokenId of session.generate({ maxTokens: 100 })) {
      tokenIds.push(tokenId);
    }
    expect(tokenIds).toHaveLength(100);
    const info = await session.info();
    expect(info.historyLength).toBe(105);
    expect(info.kvLiveBytes).toBe(68 * (info.reservedBytes / 114)); // the lane: sink, window and 46 of slack
    expect(await session.close()).toBe(105);
    expect(await session.close()).toBe(105);
    await thrown(SessionNotFound, () => session.info());
  });

  test("says how it was opened, and lists say it too", () =>
    closing(async (session) => {
      expect(session).toMatchObject({ model: stack.where.model, sink: 4, window: 64, exact: true, vocabSize: 1024 });
      expect(session.historyLength).toBe(0);
      const [model] = await client.listModels();
      expect(model).toMatchObject({ name: stack.where.model, isDefault: true, sink: 4, window: 64 });
      expect(model?.numLaneTokens).toBe(68);
      expect(model?.features).toContain("turn-search");
      const listed = [];
      for await (const each of client.listSessions()) {
        listed.push(each.id);
      }
      expect(listed).toContain(session.id);
    }));

  test("forgets what it does not keep, and says so", () =>
    closing(async (session) => {
      const appended = await session.append(LONG);
      expect(appended).toMatchObject({ historyLength: 120, numForgottenTokens: 52, numEvictedTokens: 52 });
      expect(appended.retained).toEqual([
        { start: 0, end: 4 },
        { start: 56, end: 120 },
      ]);
      const generation = session.generate({ maxTokens: 3 });
      expect(await generation.all()).toHaveLength(3);
      expect(generation.truncated).toEqual({ numDroppedTokens: 52, retained: appended.retained });
      expect(generation.done).toMatchObject({ stopReason: "max_tokens", numTokens: 3, historyLength: 123 });
      expect(generation.opId).toBe(generation.done?.opId);
      expect(session.historyLength).toBe(123);
    }));

  test("an append of 65,536 tokens", () =>
    closing(async (session) => {
      const appended = await session.append(Uint32Array.from({ length: 65_536 }, (_, index) => index % 1024));
      expect(appended.historyLength).toBe(65_536);
      expect((await session.info()).numForgottenTokens).toBe(65_536 - 68);
    }));

  test("rewinds, and goes on otherwise", () =>
    closing(async (session) => {
      await session.append([1, 2, 3]);
      const first = await session.generate({ maxTokens: 5 }).all();
      expect(await session.rewind(3)).toMatchObject({ historyLength: 3, numForgottenTokens: 0 });
      expect(await session.generate({ maxTokens: 5 }).all()).toEqual(first);
      await session.rewind(3, { onlyUntagged: true, opId: "" });
    }));

  test("forks share what came before", () =>
    closing(async (session) => {
      await session.append(LONG);
      await using fork = await session.fork({ label: "fork" });
      await using other = await client.createSession({ forkFrom: session.id });
      expect(fork.historyLength).toBe(120);
      const [first, second, third] = await Promise.all(
        [session, fork, other].map((each) => each.generate({ maxTokens: 8 }).all()),
      );
      expect(second).toEqual(first);
      expect(third).toEqual(first);
      await using earlier = await session.fork({ boundary: 120 });
      expect(await earlier.generate({ maxTokens: 8 }).all()).toEqual(first);
    }));

  test("parks, and its next call resumes it", () =>
    closing(async (session) => {
      await session.append(LONG);
      expect(await session.park()).toMatchObject({ historyLength: 120 });
      expect(await session.info()).toMatchObject({ state: "parked", kvLiveBytes: 0, numForgottenTokens: null });
      expect(await session.generate({ maxTokens: 2 }).all()).toHaveLength(2);
      expect((await session.info()).state).toBe("open");
    }));

  test("that was attached to goes on", () =>
    closing(async (session) => {
      await session.append([1, 2, 3]);
      const same = client.session(session.id);
      expect([same.model, same.historyLength]).toEqual([null, null]);
      expect((await same.append([4])).historyLength).toBe(4);
      expect((await client.session(session.id, 4).append([5])).historyLength).toBe(5);
    }));

  test("without checks appends, too", async () => {
    await using unchecked = new Client(stack.address, { checkHistory: false });
    await using session = await unchecked.createSession();
    await session.append([1, 2]);
    expect(await session.turn([3], { maxTokens: 2 }).all()).toHaveLength(2);
  });

  test("is found by tags", () =>
    closing(async (session) => {
      const [start, end] = [1, 2].map((each) => new Uint8Array(32).fill(each));
      const generation = session.turn([1, 2, 3], { maxTokens: 4 });
      await generation.all();
      await session.tag("answer_start", 3, [start ?? new Uint8Array()], { opId: generation.opId });
      await session.tag("answer_end", 7, [end ?? new Uint8Array()], { opId: generation.opId });
      const found = await client.findSession([end ?? new Uint8Array(), start ?? new Uint8Array()]);
      expect(found).toMatchObject({ id: session.id, kind: "answer_end", place: 7, tagIndex: 0, isIdleEnd: true });
      expect(await client.findSession([new Uint8Array(32)], { sessionId: session.id })).toBeNull();
      const turn = client.turnFound([end ?? new Uint8Array()], [1, 2, 9], {
        expected: { 0: 2 },
        opens: false,
        maxTokens: 2,
        startTags: [new Uint8Array(32).fill(3)],
      });
      expect(await turn.all()).toHaveLength(2);
      expect(turn.session?.id).toBe(session.id);
      expect(turn.found?.place).toBe(7);
      expect(turn.appended?.historyLength).toBe(8);
    }));
});

describe.concurrent("a turn of a client", () => {
  test("opens its session, answers and closes it", async () => {
    const generation = client.turn([1, 2, 3], { maxTokens: 4, seed: 7, temperature: 1, label: "one" });
    expect(generation.session).toBeNull();
    expect(await generation.all()).toHaveLength(4);
    expect(generation.done?.seed).toBe(7n);
    expect(await generation.session?.close()).toBe(7);
    await thrown(SessionNotFound, async () => generation.session?.info());
  });

  test("leaves its session open where it is told to", async () => {
    const generation = client.turn([1, 2, 3], { maxTokens: 4, ephemeral: false });
    await generation.begin();
    const { session } = generation;
    await generation.all();
    expect(await session?.turn([4], { maxTokens: 1 }).all()).toHaveLength(1);
    const fork = client.turnAt(session?.id ?? "", 7, [5], { maxTokens: 1 });
    await fork.all();
    expect(fork.session?.id).not.toBe(session?.id);
    const behind = client.turnAt(session?.id ?? "", 9, [], { maxTokens: 1 });
    await behind.all();
    expect(behind.session?.id).toBe(session?.id);
    await Promise.all([session?.close(), fork.session?.close()]);
  });

  test("that finds nothing opens one", async () => {
    const generation = client.turnFound([new Uint8Array(32).fill(99)], [1, 2], {
      expected: new Map([[0, 0]]),
      opens: true,
      maxTokens: 1,
    });
    expect(await generation.all()).toHaveLength(1);
    expect(generation.found).toBeNull();
    await generation.session?.close();
  });
});

describe.concurrent("choosing tokens", () => {
  test("every option reaches the runtime", () =>
    closing(async (session) => {
      const generation = session.turn([1, 2, 3], {
        maxTokens: 6,
        temperature: 0.9,
        topP: 0.95,
        topK: 50,
        minP: 0.001,
        presencePenalty: 0.1,
        frequencyPenalty: 0.1,
        repetitionPenalty: 1.1,
        logitBias: { 7: 100 },
        seed: 2n ** 64n - 1n,
        stopTokenSequences: [[7, 7, 7]],
        logprobs: 2,
        minTokens: 4,
        ignoreEos: true,
      });
      expect(await generation.all()).toEqual([7, 7, 7, 7]);
      expect(generation.done).toMatchObject({ stopReason: "stop_sequence", seed: 2n ** 64n - 1n });
      expect(generation.details.map(({ topLogprobs }) => topLogprobs.length)).toEqual([2, 2, 2, 2]);
      const json = JSON.parse(JSON.stringify(generation.done)) as Record<string, unknown>;
      expect(json).toMatchObject({ seed: "18446744073709551615", historyLength: 7 });
    }));

  test("log-probabilities of what is appended are those of what is generated", () =>
    closing(async (session) => {
      await session.append([1, 2, 3]);
      const generation = session.generate({ maxTokens: 5, logprobs: 1 });
      const tokenIds = await generation.all();
      await session.rewind(3);
      const { details } = await session.append(tokenIds, { logprobs: 1 });
      expect(details).toEqual(generation.details);
    }));

  test("an EOS token ends an answer, and a lane that is full ends one that must not forget", async () => {
    await using session = await client.createSession({ eosTokenIds: [9], onOverflow: "refuse", pin: 2 });
    const ended = session.turn([1], { maxTokens: 5, logitBias: new Map([[9, 1000]]) });
    expect(await ended.all()).toEqual([9]);
    expect(ended.done?.stopReason).toBe("eos");
    const full = session.generate({ maxTokens: 500, ignoreEos: true });
    await full.all();
    expect(full.done).toMatchObject({ stopReason: "truncated", historyLength: 68 });
  });

  test("what cannot be is refused before anything happens", () =>
    closing(async (session) => {
      await thrown(EmptyHistory, () => session.generate({ maxTokens: 1 }).all());
      const error = await thrown(InvalidField, () => session.turn([1], { maxTokens: 1, topP: 7 }).all());
      expect(error).toMatchObject({
        status: "INVALID_ARGUMENT",
        reason: "INVALID_FIELD",
        metadata: { field: "top_p" },
      });
      expect((await session.info()).historyLength).toBe(0);
    }));
});

test.concurrent("fifty sessions at once have each their own tokens", async () => {
  await using alone = await client.createSession();
  const expected = await alone.turn(range(30, 5), { maxTokens: 20, seed: 5, temperature: 1 }).all();
  const answers = await Promise.all(
    range(50).map(async (number) => {
      await using session = await client.createSession();
      return await session.turn(range(30, number % 2 ? 5 : 6), { maxTokens: 20, seed: 5, temperature: 1 }).all();
    }),
  );
  answers.forEach((answer, number) => {
    expect(answer).toHaveLength(20);
    if (number % 2) {
      expect(answer).toEqual(expected);
    }
  });
});

test.concurrent("what runs can be watched", async () => {
  await using session = await client.createSession({ label: "watched" });
  const { WatchedRuntime } = await import("../../src/index.js");
  const runtime = new WatchedRuntime();
  for await (const event of client.watch({ intervalSeconds: 0.1 })) {
    runtime.apply(event);
    const seen = runtime.sessions.get(session.id);
    if (seen?.label === "watched" && runtime.workers.size >= 2 && runtime.fleet.numSessions > 0) {
      break;
    }
  }
  const lanes = [...runtime.workers.values()].flatMap((worker) => runtime.lanes(worker));
  await eventually(() => lanes.some((holder) => holder?.sessionId === session.id), "its lane is shown");
});

test.concurrent("a client without a runtime says so", async () => {
  await using nowhere = new Client("127.0.0.1:1", { maxAttempts: 2 });
  const error = await thrown(KakeyaError, () => nowhere.listModels());
  expect([error.name, error.status]).toEqual(["ConnectionFailed", "UNAVAILABLE"]);
});
