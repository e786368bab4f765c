/** Streams and appends that break off where a real runtime cannot be made to break them. */

import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";

import * as wire from "../../src/_generated/kakeya/v1/runtime_pb.js";
import {
  AbortError,
  Client,
  ConnectionFailed,
  DeadlineExceeded,
  HistoryLengthMismatch,
  InvalidField,
  KakeyaError,
  OperationRunning,
  RpcFailed,
} from "../../src/index.js";
import { done, opened, Refusal, Scripted, STALL, token } from "../support/scripted.js";
import { eventually, thrown } from "../support/stack.js";

const BROKEN = new Refusal("UNAVAILABLE");
const info = (historyLength: bigint) => (): wire.GetSessionInfoResponse =>
  create(wire.GetSessionInfoResponseSchema, { historyLength });
const refuses = (refusal: Refusal) => (): never => {
  throw refusal;
};

/** A Generate that says so much. */
function says(...responses: (wire.GenerateResponse | Refusal | typeof STALL)[]) {
  return async function* (): AsyncGenerator<unknown, void> {
    for (const response of responses) {
      if (response instanceof Refusal) {
        throw response;
      }
      yield await Promise.resolve(response);
    }
  };
}

const requests = (runtime: Scripted): wire.GenerateRequest[] =>
  runtime.came.filter(({ method }) => method === "Generate").map(({ request }) => request as wire.GenerateRequest);

test("a stream that breaks goes on after the tokens that have arrived, under its own name", async () => {
  await using runtime = await Scripted.start({
    getSessionInfo: info(3n),
    generate: [says(token(1), token(2), BROKEN), says(BROKEN), says(token(3), done({ historyLength: 6n }))],
  });
  await using client = new Client(runtime.address);
  const session = client.session("s");
  const generation = session.generate({ maxTokens: 3, logprobs: 0 });
  expect(await generation.all()).toEqual([1, 2, 3]);
  const [first, second, third] = requests(runtime);
  expect([first?.resumeTokenIds, second?.resumeTokenIds, third?.resumeTokenIds]).toEqual([[], [1, 2], [1, 2]]);
  expect(first?.opId).toMatch(/^[0-9a-f]{16}$/);
  expect([second?.opId, third?.opId]).toEqual([first?.opId, first?.opId]);
  expect(first?.expectedHistoryLength).toBe(3n);
  expect([session.historyLength, generation.opId]).toEqual([6, "scripted-op"]);
});

test("one that breaks before its first token goes on, too", async () => {
  await using runtime = await Scripted.start({ generate: [says(BROKEN), says(token(1), done())] });
  await using client = new Client(runtime.address);
  expect(await client.session("s", 3).generate({ maxTokens: 1 }).all()).toEqual([1]);
});

test("one that nobody may repeat does not go on", async () => {
  await using runtime = await Scripted.start({ getSessionInfo: info(3n), generate: says(token(1), BROKEN) });
  await using client = new Client(runtime.address, { maxAttempts: 1 });
  const session = client.session("s");
  const generation = session.generate({ maxTokens: 3 });
  expect(await generation.nextToken()).toBe(1);
  const error = await thrown(ConnectionFailed, () => generation.nextToken());
  expect(await thrown(ConnectionFailed, () => generation.nextToken())).toBe(error);
  expect(session.historyLength).toBeNull();
});

test("one that cannot go on says why", async () => {
  const gone = new Refusal("UNAVAILABLE", "WORKER_LOST");
  await using runtime = await Scripted.start({ generate: [says(token(1), BROKEN), says(gone)] });
  await using client = new Client(runtime.address);
  await thrown(KakeyaError, () => client.session("s", 3).generate({ maxTokens: 3 }).all());
  expect(requests(runtime)).toHaveLength(2);
});

test("one that ends without a result is a fault", async () => {
  await using runtime = await Scripted.start({ generate: says(token(1)) });
  await using client = new Client(runtime.address);
  const error = await thrown(RpcFailed, () => client.session("s", 3).generate({ maxTokens: 3 }).all());
  expect(error).toMatchObject({ status: "INTERNAL", message: "the stream ended without a result" });
});

test("what comes after a result does not count, and nobody waits for it", async () => {
  await using runtime = await Scripted.start({
    generate: [says(done(), token(9), STALL), says(token(1), done(), BROKEN)],
  });
  await using client = new Client(runtime.address);
  const session = client.session("s", 5);
  expect(await session.generate({ maxTokens: 1 }).all()).toEqual([]);
  await eventually(() => runtime.numCancelled === 1, "the runtime is told");
  expect(await session.generate({ maxTokens: 1 }).all()).toEqual([1]);
});

test("a response that this version does not know is passed over", async () => {
  await using runtime = await Scripted.start({
    generate: says(create(wire.GenerateResponseSchema), token(1), done()),
  });
  await using client = new Client(runtime.address);
  expect(await client.session("s", 3).generate({ maxTokens: 1 }).all()).toEqual([1]);
});

test("a length that is not exact ends the generation", async () => {
  await using runtime = await Scripted.start({ generate: says(done({ kvLiveBytes: 2n ** 60n })) });
  await using client = new Client(runtime.address);
  const generation = client.session("s", 3).generate({ maxTokens: 1 });
  await expect(generation.all()).rejects.toThrow(RangeError);
  await thrown(KakeyaError, () => generation.nextToken());
});

test("cancelled while it waits to go on, it does not", async () => {
  await using runtime = await Scripted.start({ generate: says(token(1), BROKEN) });
  await using client = new Client(runtime.address);
  const generation = client.session("s", 3).generate({ maxTokens: 3 });
  await generation.nextToken();
  const waiting = thrown(KakeyaError, () => generation.nextToken());
  await eventually(() => requests(runtime).length > 0, "it has broken");
  generation.cancel();
  expect((await waiting).name).toBe("Cancelled");
});

test("a generation may be begun by several, and cancelled while it begins", async () => {
  await using runtime = await Scripted.start({ generate: says(STALL) });
  await using client = new Client(runtime.address);
  const generation = client.session("s", 3).generate({ maxTokens: 3 });
  const beginning = [thrown(KakeyaError, () => generation.begin()), thrown(KakeyaError, () => generation.begin())];
  await eventually(() => requests(runtime).length > 0, "it has come");
  generation.cancel();
  expect((await Promise.all(beginning)).map(({ name }) => name)).toEqual(["Cancelled", "Cancelled"]);
  await eventually(() => runtime.numCancelled === 1, "the runtime is told");
  const another = client.session("s", 3).generate({ maxTokens: 3 });
  const begun = thrown(KakeyaError, () => another.begin());
  another.cancel(); // before there is a call
  expect((await begun).name).toBe("Cancelled");
});

test("an append whose answer is lost is sent again as it was", async () => {
  const appended = create(wire.AppendTokensResponseSchema, { historyLength: 5n });
  await using runtime = await Scripted.start({
    getSessionInfo: info(3n),
    appendTokens: [refuses(BROKEN), refuses(new Refusal("ABORTED", "OPERATION_RUNNING")), () => appended],
  });
  await using client = new Client(runtime.address);
  expect((await client.session("s").append([1, 2])).historyLength).toBe(5);
  const sent = runtime.came.filter(({ method }) => method === "AppendTokens").map(({ request }) => request);
  expect(sent.map((each) => (each as wire.AppendTokensRequest).expectedHistoryLength)).toEqual([3n, 3n, 3n]);
});

test("after a cancelled operation of ours the length is read again", async () => {
  const moved = new Refusal("ABORTED", "HISTORY_LENGTH_MISMATCH");
  const appended = create(wire.AppendTokensResponseSchema, { historyLength: 9n });
  await using runtime = await Scripted.start({
    getSessionInfo: [info(3n), info(7n)],
    generate: says(token(1), STALL),
    appendTokens: [refuses(moved), () => appended],
  });
  await using client = new Client(runtime.address);
  const session = client.session("s", 2);
  for await (const tokenId of session.generate({ maxTokens: 9 })) {
    expect(tokenId).toBe(1);
    break;
  }
  expect((await session.append([1, 2])).historyLength).toBe(9);
  const sent = runtime.came.filter(({ method }) => method === "AppendTokens").map(({ request }) => request);
  expect(sent.map((each) => (each as wire.AppendTokensRequest).expectedHistoryLength)).toEqual([3n, 7n]);
  // One of another writer is not waited for.
  await using other = await Scripted.start({ appendTokens: refuses(moved) });
  await using second = new Client(other.address);
  await thrown(HistoryLengthMismatch, () => second.session("s", 3).append([1]));
});

test("an append that is not checked is sent once", async () => {
  await using runtime = await Scripted.start({ appendTokens: refuses(BROKEN) });
  await using client = new Client(runtime.address, { checkHistory: false });
  await thrown(ConnectionFailed, () => client.session("s").append([1]));
  expect(runtime.methods()).toEqual(["AppendTokens"]);
});

test("a signal ends the pause before another attempt", async () => {
  await using runtime = await Scripted.start({
    listModels: refuses(new Refusal("UNAVAILABLE", "NO_WORKER", { retryAfterSeconds: 30 })),
  });
  await using client = new Client(runtime.address);
  const controller = new AbortController();
  const listing = thrown(AbortError, () => client.listModels({ signal: controller.signal }));
  await eventually(() => runtime.came.length === 1, "it was refused");
  setTimeout(() => {
    controller.abort();
  }, 50);
  await listing;
  expect(runtime.came).toHaveLength(1);
});

test("one iteration goes on with what another has left", async () => {
  await using runtime = await Scripted.start({ generate: says(token(1), token(2), done()) });
  await using client = new Client(runtime.address);
  const tokens = client.session("s", 3).generate({ maxTokens: 2 })[Symbol.asyncIterator]();
  expect(await tokens.next()).toEqual({ done: false, value: 1 });
  const rest = [];
  for await (const tokenId of tokens) {
    rest.push(tokenId);
  }
  expect(rest).toEqual([2]);
});

test("closing what the runtime does not have any more is no error", async () => {
  await using runtime = await Scripted.start({
    closeSession: refuses(new Refusal("NOT_FOUND", "SESSION_NOT_FOUND")),
  });
  await using client = new Client(runtime.address);
  expect(await client.session("s").close()).toBeNull();
});

test("closing is tried again where it failed", async () => {
  await using runtime = await Scripted.start({
    closeSession: [
      refuses(new Refusal("ABORTED", "OPERATION_RUNNING")),
      () => create(wire.CloseSessionResponseSchema, { finalHistoryLength: 4n }),
    ],
  });
  await using client = new Client(runtime.address);
  const session = client.session("s");
  await thrown(OperationRunning, () => session.close());
  expect([await session.close(), await session.close()]).toEqual([4, 4]);
  expect(runtime.methods()).toHaveLength(2);
});

test("a session is closed in the background where nobody saw its answer", async () => {
  await using runtime = await Scripted.start({
    createSession: [() => STALL, refuses(new Refusal("INVALID_ARGUMENT", "INVALID_FIELD"))],
    closeSession: refuses(new Refusal("NOT_FOUND", "SESSION_NOT_FOUND")),
  });
  {
    await using client = new Client(runtime.address);
    await thrown(DeadlineExceeded, () => client.createSession({ timeoutSeconds: 0.2 }));
    await thrown(InvalidField, () => client.createSession());
  }
  const [created] = runtime.came.map(({ request }) => request as wire.CreateSessionRequest);
  const closed = runtime.came.filter(({ method }) => method === "CloseSession").map(({ request }) => request);
  expect(closed).toMatchObject([{ requestId: created?.requestId }]);
});

test("and the client's close does not wait for that for ever; one that is shared is left alone", async () => {
  await using runtime = await Scripted.start({ createSession: () => STALL, closeSession: () => STALL });
  const client = new Client(runtime.address, { timeoutSeconds: 0.2 });
  await thrown(DeadlineExceeded, () => client.createSession({ requestId: "mine" }));
  expect(runtime.methods()).toEqual(["CreateSession"]);
  await thrown(DeadlineExceeded, () => client.createSession());
  const began = performance.now();
  await client.close();
  expect(performance.now() - began).toBeGreaterThan(1_900);
});

test("a runtime that cannot fork is found out, and its empty session closed", async () => {
  await using runtime = await Scripted.start({
    createSession: () => opened("empty"),
    closeSession: () => create(wire.CloseSessionResponseSchema),
  });
  await using client = new Client(runtime.address);
  const error = await thrown(RpcFailed, () => client.createSession({ forkFrom: "source" }));
  expect(error.status).toBe("UNIMPLEMENTED");
  await thrown(RpcFailed, () => client.session("source", 5).fork());
  expect(runtime.methods().filter((method) => method === "CloseSession")).toHaveLength(2);
  const [, , second] = runtime.came.map(({ request }) => request as wire.CreateSessionRequest);
  expect(second?.forkFrom).toMatchObject({ sessionId: "source", boundary: 5n });
  await thrown(InvalidField, () => client.createSession({ boundary: 5 }));
});

test("pages of lists are fetched as they are taken, and nothing comes twice", async () => {
  const page = (nextPageToken: string, ...sessionIds: string[]): object => ({
    sessions: sessionIds.map((sessionId) => ({ sessionId })),
    nextPageToken,
  });
  const make = (each: object) => (): object => create(wire.ListSessionsResponseSchema, each);
  await using runtime = await Scripted.start({
    listSessions: [make(page("2", "a", "b")), make(page("3")), make(page("", "b", "c"))],
  });
  await using client = new Client(runtime.address);
  const ids = [];
  for await (const { id } of client.listSessions()) {
    ids.push(id);
  }
  expect(ids).toEqual(["a", "b", "c"]);
  expect(runtime.came.map(({ request }) => (request as wire.ListSessionsRequest).pageToken)).toEqual(["", "2", "3"]);
});
