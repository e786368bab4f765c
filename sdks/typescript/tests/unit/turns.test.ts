/** Turns that break off, and runtimes of older versions. */

import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";

import * as wire from "../../src/_generated/kakeya/v1/runtime_pb.js";
import { Client, ConnectionFailed, FoundElsewhere, InvalidField, RpcFailed, SessionNotFound } from "../../src/index.js";
import { appended, done, generated, inSession, opened, Refusal, Scripted, STALL, token } from "../support/scripted.js";
import { eventually, thrown } from "../support/stack.js";

const BROKEN = new Refusal("UNAVAILABLE");
const TAG = new Uint8Array(32);

type Said = wire.TurnResponse | wire.GenerateResponse | Refusal | typeof STALL;

function says(...responses: Said[]) {
  return async function* (): AsyncGenerator<unknown, void> {
    for (const response of responses) {
      if (response instanceof Refusal) {
        throw response;
      }
      yield await Promise.resolve(response);
    }
  };
}

const answer = (...tokenIds: number[]): wire.TurnResponse[] => [...tokenIds.map(token), done()].map(generated);
const closed = (): wire.CloseSessionResponse => create(wire.CloseSessionResponseSchema);
const foundAt = (sessionId: string, place: bigint, beside?: wire.TurnResponse): wire.TurnResponse =>
  create(wire.TurnResponseSchema, {
    ...(beside && { event: beside.event }),
    found: create(wire.FindSessionResponseSchema, {
      sessionId,
      place: { kind: wire.PlaceKind.ANSWER_END, historyLength: place },
    }),
  });

test("a turn that is lost before its append is sent again, later its generation goes on", async () => {
  await using runtime = await Scripted.start({
    turn: [says(BROKEN), says(inSession(), BROKEN), says(inSession(), appended(), generated(token(1)), BROKEN)],
    generate: says(token(2), done()),
  });
  await using client = new Client(runtime.address);
  const session = client.session("s", 2);
  const generation = session.turn([7], { maxTokens: 2, logprobs: 1 });
  expect(await generation.all()).toEqual([1, 2]);
  expect(generation.appended).toMatchObject({ historyLength: 3 });
  expect(runtime.methods()).toEqual(["Turn", "Turn", "Turn", "Generate"]);
  const [first, , third] = runtime.came.map(({ request }) => request as wire.TurnRequest);
  expect(third).toEqual(first);
  expect(runtime.came[3]?.request).toMatchObject({
    sessionId: "s",
    expectedHistoryLength: 3n,
    resumeTokenIds: [1],
    opId: first?.generate?.opId,
  });
});

test("a turn that nobody may repeat is not", async () => {
  await using runtime = await Scripted.start({ turn: says(inSession(), BROKEN) });
  await using client = new Client(runtime.address, { checkHistory: false });
  await thrown(ConnectionFailed, () => client.session("s").turn([7], { maxTokens: 2 }).all());
  expect(runtime.methods()).toEqual(["Turn"]);
});

test("a runtime without turns gets an append and a generate, and is not asked again", async () => {
  await using runtime = await Scripted.start({
    createSession: () => opened("new"),
    appendTokens: () => create(wire.AppendTokensResponseSchema, { historyLength: 3n }),
    generate: says(token(1), done()),
  });
  await using client = new Client(runtime.address);
  const session = client.session("s", 2);
  expect(await session.turn([7], { maxTokens: 1, timeoutSeconds: 60 }).all()).toEqual([1]);
  expect(await session.turn([7], { maxTokens: 1 }).all()).toEqual([1]);
  const own = client.turn([7], { maxTokens: 1 });
  expect(await own.all()).toEqual([1]);
  expect(own.session?.id).toBe("new");
  const parts = ["AppendTokens", "Generate"];
  expect(runtime.methods()).toEqual(["Turn", ...parts, ...parts, "CreateSession", ...parts]);
  await thrown(RpcFailed, () => client.turnAt("s", 2, [7], { maxTokens: 1 }).all());
  await thrown(RpcFailed, () => client.turnFound([TAG], [7], { expected: {}, opens: false, maxTokens: 1 }).all());
});

test("a turn of a client whose session stays unknown has it closed", async () => {
  await using runtime = await Scripted.start({
    turn: [says(STALL), says(inSession(), new Refusal("NOT_FOUND", "SESSION_NOT_FOUND")), says(inSession("x"), BROKEN)],
    closeSession: closed,
  });
  await using client = new Client(runtime.address);
  const controller = new AbortController();
  const lost = client.turn([7], { maxTokens: 1, signal: controller.signal });
  const beginning = lost.begin().catch((error: unknown) => error);
  await eventually(() => runtime.came.length > 0, "it has come");
  controller.abort();
  expect(await beginning).toMatchObject({ name: "AbortError" });
  await eventually(() => runtime.methods().includes("CloseSession"), "it is closed");
  await thrown(SessionNotFound, () => client.turn([7], { maxTokens: 1 }).all());
  await eventually(() => runtime.methods().filter((each) => each === "CloseSession").length === 2, "so is the other");
});

test("one that gets another session when it is sent again is in that", async () => {
  await using runtime = await Scripted.start({
    turn: [says(inSession("x"), BROKEN), says(inSession("y"), appended(), ...answer(1))],
  });
  await using client = new Client(runtime.address);
  const generation = client.turn([7], { maxTokens: 1 });
  expect(await generation.all()).toEqual([1]);
  expect(generation.session?.id).toBe("y");
});

test("a session that takes too long to be there is not waited for", async () => {
  await using runtime = await Scripted.start({ turn: says(STALL), closeSession: closed });
  await using client = new Client(runtime.address);
  const turn = client.turn([7], { maxTokens: 1, openTimeoutSeconds: 0.2 });
  await expect(turn.all()).rejects.toThrow(/no answer within 0\.\d+ s/);
});

test("a turn at a place is in its fork, which is closed where nothing is in it", async () => {
  await using runtime = await Scripted.start({
    turn: [
      says(inSession("fork"), appended(), ...answer(1)),
      says(inSession("empty"), new Refusal("INTERNAL", "INTERNAL")),
      says(STALL),
      says(inSession("s"), new Refusal("INTERNAL", "INTERNAL")),
    ],
    closeSession: closed,
  });
  await using client = new Client(runtime.address);
  const generation = client.turnAt("s", 2, [7], { maxTokens: 1, startTags: [TAG] });
  expect(await generation.all()).toEqual([1]);
  expect(generation.session?.id).toBe("fork");
  const [request] = runtime.came.map(({ request }) => request as wire.TurnRequest);
  expect(request).toMatchObject({ where: { value: { sessionId: "s", boundary: 2n } } });
  expect(request?.startTags.map((tag) => [...tag])).toEqual([[...TAG]]);
  await expect(client.turnAt("s", 2, [7], { maxTokens: 1 }).all()).rejects.toThrow("scripted INTERNAL");
  await expect(client.turnAt("s", 2, [7], { maxTokens: 1, openTimeoutSeconds: 0.2 }).all()).rejects.toThrow(
    "no answer",
  );
  await eventually(() => runtime.methods().filter((each) => each === "CloseSession").length === 2, "both are closed");
  await expect(client.turnAt("s", 2, [7], { maxTokens: 1 }).all()).rejects.toThrow("scripted INTERNAL");
  expect(runtime.methods().filter((each) => each === "CloseSession")).toHaveLength(2);
});

test("a search that comes to another place has changed nothing", async () => {
  await using runtime = await Scripted.start({
    turn: [
      says(foundAt("other", 9n)),
      says(foundAt("", 0n)),
      says(foundAt("s", 4n, inSession("s")), appended(), ...answer(1)),
    ],
  });
  await using client = new Client(runtime.address);
  const options = { expected: { 0: 1 }, opens: false, maxTokens: 1 };
  const elsewhere = client.turnFound([TAG], [7, 8], options);
  const error = await thrown(FoundElsewhere, () => elsewhere.begin());
  expect([error.message, elsewhere.found?.id]).toEqual(["the search has come to another place", "other"]);
  const nowhere = client.turnFound([TAG], [7, 8], options);
  await expect(nowhere.all()).rejects.toThrow("the search has come to nothing");
  const there = client.turnFound([TAG], [7, 8], { ...options, model: "m" });
  expect(await there.all()).toEqual([1]);
  expect([there.found?.place, there.session?.id]).toEqual([4, "s"]);
  expect(() => client.turnFound([TAG], [7], { ...options, expected: { 0: 2 } })).toThrow(InvalidField);
});

test("a runtime that passes over a search is found out, and what it has opened is closed", async () => {
  await using runtime = await Scripted.start({
    turn: [says(inSession("new"), STALL), says(STALL)],
    closeSession: closed,
  });
  await using client = new Client(runtime.address);
  const options = { expected: {}, opens: true, maxTokens: 1 };
  const error = await thrown(RpcFailed, () => client.turnFound([TAG], [7], options).all());
  expect(error.status).toBe("FAILED_PRECONDITION");
  await eventually(() => runtime.methods().filter((each) => each === "CloseSession").length === 2, "it is closed");
  const late = client.turnFound([TAG], [7], { ...options, opens: false, openTimeoutSeconds: 0.2 });
  await expect(late.all()).rejects.toThrow("no answer");
});
