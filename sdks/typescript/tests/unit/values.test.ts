import { create, fromBinary, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { expect, test } from "vitest";

import * as admin from "../../src/_generated/kakeya/admin/v1/admin_pb.js";
import * as wire from "../../src/_generated/kakeya/v1/runtime_pb.js";
import { Grammar, InvalidField, Reasoning, TokenOutOfVocabulary, WatchedRuntime } from "../../src/index.js";
import { number64 } from "../../src/results/number64.js";
import { plain } from "../../src/results/plain.js";
import {
  foundSession,
  overflowPolicyToWire,
  placeKindToWire,
  sessionInfo,
  stateOfName,
} from "../../src/results/sessions.js";
import { appendResult, generateResult, sight, tokenDetail } from "../../src/results/turns.js";
import { watchEvent } from "../../src/results/watched.js";
import { QUICK } from "../../src/transport/quick.js";
import { fill, tagList, tokenList } from "../../src/transport/fields.js";
import { generateRequest } from "../../src/transport/requests.js";

const MAX = 2n ** 53n - 1n;

test("lengths and bytes are exact numbers, or an error", () => {
  expect(number64(MAX)).toBe(Number.MAX_SAFE_INTEGER);
  expect(() => number64(MAX + 1n)).toThrow(RangeError);
  expect(() => sessionInfo(create(wire.GetSessionInfoResponseSchema, { kvLiveBytes: MAX + 1n }))).toThrow(RangeError);
});

test("token ids are whole numbers of 32 bits", () => {
  expect(tokenList(new Set([1, 2]))).toEqual([1, 2]);
  expect(() => tokenList([1.5])).toThrow(InvalidField);
  expect(() => tokenList(["1"] as never)).toThrow(InvalidField);
  expect(() => tokenList(5 as never)).toThrow(InvalidField);
  expect(() => tokenList([-1])).toThrow(TokenOutOfVocabulary);
  expect(() => tokenList([2 ** 32])).toThrow(TokenOutOfVocabulary);
});

test("fields are checked before they are sent", () => {
  const request = (values: object): wire.GenerateRequest =>
    fill(wire.GenerateRequestSchema, create(wire.GenerateRequestSchema), values);
  expect(request({ seed: 5, topK: undefined, temperature: 0.5, ignoreEos: true, opId: "o" })).toMatchObject({
    seed: 5n,
    temperature: 0.5,
  });
  for (const [name, value] of Object.entries({
    maxTokens: -1,
    topK: 2 ** 32,
    seed: -1n,
    temperature: "hot",
    ignoreEos: 1,
    opId: 5,
  })) {
    expect(() => request({ [name]: value }), name).toThrow(InvalidField);
  }
  expect(() => request({ seed: 2n ** 64n })).toThrow(InvalidField);
  expect(() => request({ seed: 1.5 })).toThrow(InvalidField);
  expect(() => request({ seed: 2 ** 53 })).toThrow(RangeError);
  expect(() => request({ nonesuch: 1 })).toThrow(TypeError);
  expect(() => tagList([1] as never)).toThrow(InvalidField);
  expect(() => tagList(new Uint8Array(32) as never)).toThrow(InvalidField);
});

test("a generation is told all that it is asked", () => {
  const request = generateRequest("s", 5, {
    grammar: Grammar.jsonObject(),
    reasoning: new Reasoning({ endTokenIds: [1, 2], maxTokens: 9 }),
    logitBias: { 7: -1 },
    stopTokenSequences: [[1], [2, 3]],
  });
  expect(request.grammar?.kind).toEqual({ case: "jsonSchema", value: '{"type":"object"}' });
  expect(request.reasoning).toMatchObject({ endTokenIds: [1, 2], beginTokenIds: [], maxTokens: 9 });
  expect(request.logitBias).toEqual({ 7: -1 });
  expect(request.stopTokenSequences.map(({ tokenIds }) => tokenIds)).toEqual([[1], [2, 3]]);
  for (const given of [
    { grammar: {} },
    { reasoning: {} },
    { logitBias: { 7: "x" } },
    { logitBias: { x: 1 } },
    { stopTokenSequences: 5 },
    { stopTokenSequences: [5] },
  ]) {
    expect(() => generateRequest("s", 5, given as never), JSON.stringify(given)).toThrow(InvalidField);
  }
  expect(() => generateRequest("s", 5, { nonesuch: 1 } as never)).toThrow(TypeError);
  expect(() => generateRequest("s", 5, { opId: "o" } as never)).toThrow(TypeError);
});

test("a token alone is read without its schema, as the schema reads it", () => {
  const [generate, turn] = [wire.GenerateResponseSchema, wire.TurnResponseSchema].map((schema) => QUICK.get(schema));
  for (const value of [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 151_643, 2 ** 28, 2 ** 31, 2 ** 32 - 1]) {
    const response = create(wire.GenerateResponseSchema, { payload: { case: "tokenId", value } });
    const bytes = toBinary(wire.GenerateResponseSchema, response);
    expect(generate?.(bytes)).toEqual({ ...fromBinary(wire.GenerateResponseSchema, bytes) });
    const inTurn = toBinary(
      wire.TurnResponseSchema,
      create(wire.TurnResponseSchema, { event: { case: "generated", value: response } }),
    );
    expect(turn?.(inTurn)).toMatchObject({ event: { case: "generated", value: { payload: { value } } } });
    for (let length = 0; length < inTurn.length; length += 1) {
      expect(turn?.(inTurn.subarray(0, length))).toBeUndefined();
    }
  }
});

test("what is no token alone is left to the schema", () => {
  const [generate, turn] = [wire.GenerateResponseSchema, wire.TurnResponseSchema].map((schema) => QUICK.get(schema));
  const whole = (response: MessageInitShape<typeof wire.GenerateResponseSchema>): Uint8Array =>
    toBinary(wire.GenerateResponseSchema, create(wire.GenerateResponseSchema, response));
  const others = [
    [],
    [0x08],
    [0x08, 0x80],
    [0x08, 5, 0x08, 6], // the last of several counts
    [0x08, 0xff, 0xff, 0xff, 0xff, 0x1f], // more than 32 bits
    [0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
    ...[
      whole({ payload: { case: "tokenId", value: 5 }, detail: { logprob: -1 } }),
      whole({ payload: { case: "done", value: {} } }),
      whole({ payload: { case: "truncated", value: { droppedTokenCount: 5n } } }),
    ],
  ];
  for (const bytes of others) {
    expect(generate?.(Uint8Array.from(bytes))).toBeUndefined();
    expect(turn?.(Uint8Array.from([0x1a, bytes.length, ...bytes]))).toBeUndefined();
  }
  expect(turn?.(Uint8Array.from([0x12, 2, 0x08, 5]))).toBeUndefined();
  expect(turn?.(Uint8Array.from([0x1a, 2, 0x08, 5, 0x22, 0]))).toBeUndefined();
});

test("grammars of each kind", () => {
  const kinds = [Grammar.jsonSchema("true"), Grammar.regex("a+"), Grammar.choice(["a", "b"]), Grammar.lark("start: A")];
  expect(kinds.map(({ wire: { kind } }) => kind.case)).toEqual(["jsonSchema", "regex", "choice", "lark"]);
  expect(() => new Reasoning({ endTokenIds: [1], maxTokens: -1 })).toThrow(InvalidField);
});

test("what an older or newer runtime says is made the best of", () => {
  const nothing = { historyLength: 5n, kvLiveBytes: 0n, retained: [] };
  expect(sight(nothing).numForgottenTokens).toBeNull();
  expect(sight({ ...nothing, historyLength: 0n }).numForgottenTokens).toBe(0);
  expect(generateResult(create(wire.GenerateDoneSchema, { stopReason: 99 as never })).stopReason).toBe("unspecified");
  expect(sessionInfo(create(wire.GetSessionInfoResponseSchema, { state: 99 as never })).state).toBe("unspecified");
  expect(stateOfName("dreaming")).toBe("unspecified");
  expect(foundSession(create(wire.FindSessionResponseSchema, { sessionId: "s" }))).toMatchObject({
    kind: "unspecified",
    place: 0,
  });
  expect(
    foundSession(create(wire.FindSessionResponseSchema, { sessionId: "s", place: { kind: 99 as never } }))?.kind,
  ).toBe("unspecified");
  expect(tokenDetail(5, undefined)).toEqual({ tokenId: 5, logprob: null, topLogprobs: [] });
  expect(plain(admin.KeySchema, create(admin.KeySchema, { scopes: [admin.Scope.ADMIN, 99 as never] })).scopes).toEqual([
    "admin",
    "unspecified",
  ]);
  expect(plain(admin.SessionSchema)).toMatchObject({ lane: null, lastTurn: null, historyLength: 0, retained: [] });
  const logprobs = [{ logprob: -1 }];
  expect(appendResult(create(wire.AppendTokensResponseSchema, { logprobs }), [7, 8]).details).toMatchObject([
    { tokenId: 8, logprob: -1 },
  ]);
});

test("names that there are not", () => {
  expect(() => placeKindToWire("elsewhere" as never)).toThrow(InvalidField);
  expect(() => overflowPolicyToWire("toString" as never)).toThrow(InvalidField);
  expect(placeKindToWire("head")).toBe(wire.PlaceKind.HEAD);
});

test("what is watched adds up", () => {
  const runtime = new WatchedRuntime();
  const session = { pool: "p", workerId: "w", reservedBytes: 5n, idleSeconds: 2 };
  const first = create(admin.WatchResponseSchema, {
    begins: true,
    at: 10,
    fleet: { numSessions: 3n },
    workers: [{ workerId: "w", pool: "p", incarnation: "i", numLanes: 3, lastHeartbeatAgeSeconds: 1 }],
    sessions: [
      { sessionId: "a", lane: 1, ...session },
      { sessionId: "b", lane: 1, ...session, lastTurn: { numTokens: 3 } },
      { sessionId: "c", pool: "p", workerId: "other", state: "parked" },
    ],
    queues: [{ pool: "p", numWaiting: 2n, tenants: [{ tenant: "t", numWaiting: 2n }] }],
  });
  runtime.apply(watchEvent(first));
  const [worker] = runtime.workers.values();
  expect(worker?.lateSeconds).toBe(1);
  expect(worker && runtime.lanes(worker).map((holder) => holder?.sessionId)).toEqual(["b", "a", undefined]);
  expect(runtime.sessions.get("b")).toMatchObject({ idleSince: 8, lane: 1, lastTurn: { numTokens: 3 } });
  expect(runtime.queues.get("p")?.tenants).toEqual({ t: 2 });
  const second = { at: 11, goneSessionIds: ["a"], goneIncarnations: ["i"], gonePools: ["p"] };
  runtime.apply(watchEvent(create(admin.WatchResponseSchema, second)));
  expect([runtime.sessions.size, runtime.workers.size, runtime.queues.size]).toEqual([2, 0, 0]);
  expect([runtime.fleet.numSessions, runtime.at]).toEqual([3, 11]);
  runtime.apply(watchEvent(create(admin.WatchResponseSchema, { begins: true, at: 12 })));
  expect([runtime.sessions.size, runtime.fleet.numSessions]).toEqual([0, 0]);
});
