/** Errors as a runtime of real processes causes them. */

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import * as sdk from "../../src/index.js";
import { Client, KakeyaError, NoCapacity, type Session } from "../../src/index.js";
import { plainStack, range, thrown, type Stack } from "../support/stack.js";

const ENDLESS = { maxTokens: 65_536, ignoreEos: true };

/** Made by `unit/errors.test.ts` alone. Why a runtime that tests share, or this SDK, is not brought to them: */
const SCRIPTED = {
  INTERNAL: "a fault of the runtime itself",
  INVARIANT_VIOLATED: "likewise",
  OBJECT_CHANGED: "the calls of objects are the Python SDK's",
  OBJECT_NOT_FOUND: "likewise",
  OPERATION_STOPPED: "nobody reads for a minute",
  SNAPSHOT_REFUSED: "a file that is damaged",
  SNAPSHOT_STORE_UNAVAILABLE: "a disk that is gone, and a journal at its bound",
  WORKER_LOST: "no other worker may be there that could take over",
};
/** Caused by the tests of `secured`, of a stack with keys. */
const SECURED = ["CREDENTIAL_NOT_FOUND", "PERMISSION_DENIED", "QUOTA_EXCEEDED", "UNAUTHENTICATED"];

/** What a session is brought to that has three tokens. */
const OF_A_SESSION: Record<string, (session: Session, client: Client) => Promise<unknown>> = {
  BOUNDARY_NOT_REACHABLE: (session) => session.rewind(4),
  DEADLINE_EXCEEDED: (_, client) => client.turn([1], { ...ENDLESS, timeoutSeconds: 0.3 }).all(),
  EMPTY_HISTORY: (_, client) => client.turn([], { maxTokens: 1 }).all(),
  HISTORY_FULL: (session) => session.append(range(68)),
  HISTORY_LENGTH_MISMATCH: (session, client) => client.session(session.id, 99).append([1]),
  INVALID_FIELD: (session) => session.generate({ maxTokens: 1, topP: 7 }).all(),
  NO_WORKER: (_, client) => client.createSession({ model: "none" }),
  OPERATION_RUNNING: async (session, client) => {
    await using generation = session.generate(ENDLESS);
    await generation.begin();
    await client.session(session.id).append([1]);
  },
  SESSION_CLOSED: async (session) => {
    const generation = session.generate(ENDLESS);
    await generation.begin();
    await Promise.all([generation.all(), session.close()]);
  },
  SESSION_NOT_FOUND: (_, client) => client.session("demo.none").info(),
  TOKEN_OUT_OF_VOCABULARY: (session) => session.append([5000]),
};

/** What a router is brought to that runs with these flags. */
const OF_A_ROUTER: Record<string, [string[], (client: Client, router: string) => Promise<unknown>]> = {
  APPEND_TOO_LONG: [
    ["--max-append-tokens=10"],
    async (client) => {
      await using session = await client.createSession();
      await session.append(range(11));
    },
  ],
  DRAINING: [
    [],
    async (client, router) => {
      const events = client.watch({ intervalSeconds: 0.1 });
      await events.next();
      const stopped = stack.do("stop_router", { address: router });
      try {
        for await (const { at } of events) {
          expect(at).toBeGreaterThan(0);
        }
      } finally {
        await stopped;
      }
    },
  ],
  NO_CAPACITY: [["--admission=reject"], (client) => client.createSession()],
  QUEUE_FULL: [
    ["--admission=queue", "--queue-length=1", "--queue-seconds=60"],
    async (client) => {
      const controller = new AbortController();
      const { signal } = controller;
      const both = [1, 2].map(() => client.createSession({ signal, timeoutSeconds: 120 }));
      const [first, second] = both.map((each) => each.catch((error: unknown) => error));
      try {
        const refused = await Promise.race([first, second]);
        controller.abort();
        throw refused as Error;
      } finally {
        await Promise.all([first, second]);
      }
    },
  ],
  QUEUE_TIMED_OUT: [["--admission=queue", "--queue-seconds=0.2"], (client) => client.createSession()],
  STORE_UNAVAILABLE: [
    ["--redis-timeout-seconds=0.3"],
    async (client) => {
      await stack.do("pause_store");
      try {
        await client.createSession();
      } finally {
        await stack.do("resume_store");
      }
    },
  ],
  TOO_MANY_CALLS: [
    ["--max-calls=1"],
    async (client) => {
      const watching = client.watch();
      await watching.next();
      try {
        await client.listModels();
      } finally {
        await watching.return();
      }
    },
  ],
};
const FULL = ["NO_CAPACITY", "QUEUE_FULL", "QUEUE_TIMED_OUT"];

let stack: Stack;
let client: Client;

beforeAll(async () => {
  stack = await plainStack();
  client = new Client(stack.address, { maxAttempts: 1 });
});
afterAll(() => client.close());

async function fails(reason: string, work: () => Promise<unknown>): Promise<void> {
  const error = await thrown(KakeyaError, work);
  const kinds = Object.values(sdk).filter((each) => (each as { reason?: string }).reason === reason);
  expect([error.constructor]).toEqual(kinds);
  expect(error.message).not.toBe("");
}

test("each reason is caused here, or it is said why not", () => {
  const reasons = Object.values(sdk).map((each) => (each as { reason?: string }).reason ?? "");
  const told = [OF_A_SESSION, OF_A_ROUTER, SCRIPTED].flatMap((each) => Object.keys(each));
  expect([...told, ...SECURED].sort()).toEqual([...new Set(reasons)].filter((each) => each !== "").sort());
});

test.concurrent.each(Object.entries(OF_A_SESSION))("%s", async (reason, work) => {
  await using session = await client.createSession({ onOverflow: "refuse" });
  await session.append([1, 2, 3]);
  await fails(reason, () => work(session, client));
});

async function ofARouter(reason: string): Promise<void> {
  const [flags, work] = OF_A_ROUTER[reason] ?? [[], () => Promise.resolve()];
  const address = (await stack.do("start_router", { flags })) as string;
  await using own = new Client(address, { maxAttempts: 1 });
  await fails(reason, () => work(own, address));
  if (reason !== "DRAINING") {
    await stack.do("kill_router", { address });
  }
}

test.each(Object.keys(OF_A_ROUTER).filter((reason) => !FULL.includes(reason)))("%s", ofARouter);

describe("where every lane is taken", () => {
  const sessions: Session[] = [];

  beforeAll(async () => {
    const address = (await stack.do("start_router", { flags: ["--admission=reject"] })) as string;
    await using strict = new Client(address, { maxAttempts: 1 });
    await thrown(NoCapacity, async () => {
      for (;;) {
        sessions.push(client.session((await strict.createSession()).id));
      }
    });
    await stack.do("kill_router", { address });
  });
  afterAll(() => Promise.all(sessions.map((each) => each.close())));

  test.each(FULL)("%s", ofARouter);
});
