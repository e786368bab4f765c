import { create } from "@bufbuild/protobuf";
import { context, propagation, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import * as wire from "../../src/_generated/kakeya/v1/runtime_pb.js";
import { Client, ConnectionFailed, InvalidField, MissingExtra } from "../../src/index.js";
import { done, Refusal, Scripted, token } from "../support/scripted.js";
import { thrown } from "../support/stack.js";

const exporter = new InMemorySpanExporter();

beforeEach(() => {
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  trace.setGlobalTracerProvider(provider);
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
});
afterEach(() => {
  exporter.reset();
  trace.disable();
  context.disable();
  propagation.disable();
});

const appended = create(wire.AppendTokensResponseSchema, { historyLength: 3n, kvLiveBytes: 9n, evictedTokenCount: 1n });

async function* answer(): AsyncGenerator<unknown, void> {
  yield await Promise.resolve(token(1));
  yield done({ historyLength: 4n, generatedTokenCount: 1, evictedTokenCount: 2n });
}

test("every call has a span, and the trace goes on in the runtime", async () => {
  await using runtime = await Scripted.start({ appendTokens: () => appended, generate: answer });
  await using client = new Client(runtime.address);
  const session = client.session("s", 1);
  await trace.getTracer("app").startActiveSpan("app", async (app) => {
    await session.turn([1, 2], { maxTokens: 1 }).all(); // in parts: this runtime knows no turns
    app.end();
  });
  const spans = exporter.getFinishedSpans();
  expect(spans.map(({ name }) => name)).toEqual([
    "kakeya.v1.RuntimeService/Turn",
    "kakeya.v1.RuntimeService/AppendTokens",
    "kakeya.v1.RuntimeService/Generate",
    "kakeya turn",
    "app",
  ]);
  const [turn, append, generate, parts, app] = spans;
  expect(new Set(spans.map((span) => span.spanContext().traceId)).size).toBe(1);
  expect(append?.parentSpanContext?.spanId).toBe(parts?.spanContext().spanId);
  expect(parts?.parentSpanContext?.spanId).toBe(app?.spanContext().spanId);
  expect(append?.kind).toBe(SpanKind.CLIENT);
  expect(append?.attributes).toMatchObject({
    "rpc.system": "grpc",
    "rpc.service": "kakeya.v1.RuntimeService",
    "rpc.method": "AppendTokens",
    "rpc.grpc.status_code": 0,
    "gen_ai.conversation.id": "s",
    "kakeya.history_length": 3,
    "kakeya.kv_live_bytes": 9,
    "kakeya.num_evicted_tokens": 1,
    "kakeya.num_new_tokens": 2,
  });
  expect(generate?.attributes["kakeya.num_generated_tokens"]).toBe(1);
  expect(turn?.attributes["rpc.grpc.status_code"]).toBe(12);
  const sent = runtime.came[1]?.headers.get("traceparent")[0];
  expect(sent).toBe(`00-${append?.spanContext().traceId}-${append?.spanContext().spanId}-01`);
});

test("a failure is a failed span, and knows its trace", async () => {
  await using runtime = await Scripted.start({
    listModels: () => {
      throw new Refusal("INVALID_ARGUMENT", "INVALID_FIELD");
    },
  });
  await using client = new Client(runtime.address);
  const error = await thrown(InvalidField, () => client.listModels());
  await client
    .session("s", 1)
    .append([1], { signal: AbortSignal.abort() })
    .catch(() => undefined);
  const [refused, left] = exporter.getFinishedSpans();
  expect(error.traceId).toBe(refused?.spanContext().traceId);
  expect(refused?.status).toEqual({ code: SpanStatusCode.ERROR, message: "INVALID_FIELD" });
  expect(left?.status.message).toBe("AbortError");
  expect(left?.attributes["rpc.grpc.status_code"]).toBe(1);
});

test("what ends without an error of the SDK's is cancelled, and no span ends twice", async () => {
  const { OtelTracer } = await import("../../src/spans/otel.js");
  const span = new OtelTracer().start("a/B", { kind: "client" });
  span.end(new RangeError("not exact"));
  span.end();
  expect(exporter.getFinishedSpans()).toHaveLength(1);
  expect(exporter.getFinishedSpans()[0]?.attributes["rpc.grpc.status_code"]).toBe(1);
});

test("where nobody records, an error names no trace", async () => {
  trace.disable();
  await using client = new Client("127.0.0.1:1", { tracing: true, maxAttempts: 1 });
  expect((await thrown(ConnectionFailed, () => client.listModels())).traceId).toBe("");
});

test("without OpenTelemetry, or where it is not wanted, there are none", async () => {
  await using runtime = await Scripted.start({ listModels: () => ({ models: [] }) });
  await using client = new Client(runtime.address, { tracing: false });
  await client.listModels();
  trace.disable();
  context.disable();
  propagation.disable();
  const registered = Symbol.for("opentelemetry.js.api.1");
  Reflect.deleteProperty(globalThis, registered);
  await using plain = new Client(runtime.address);
  await plain.listModels();
  expect(exporter.getFinishedSpans()).toEqual([]);
});

test("spans that are asked for need OpenTelemetry", async () => {
  vi.doMock("../../src/spans/otel.js", () => {
    throw new Error("not installed");
  });
  await using client = new Client("127.0.0.1:1", { tracing: true });
  const error = await thrown(MissingExtra, () => client.listModels());
  expect(error.message).toBe("tracing needs a package; install it with: npm install @opentelemetry/api");
  vi.doUnmock("../../src/spans/otel.js");
});
