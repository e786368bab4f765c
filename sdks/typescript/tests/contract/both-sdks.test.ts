import { context, propagation, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
  type ReadableSpan,
} from "@opentelemetry/sdk-trace-base";
import { afterAll, beforeAll, expect, test, vi } from "vitest";

import { Client, KakeyaError, type AppendOptions, type Generation, type Session } from "../../src/index.js";
import { plainStack, range, type Stack } from "../support/stack.js";

const exporter = new InMemorySpanExporter();
let stack: Stack;
let client: Client;

beforeAll(async () => {
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  trace.setGlobalTracerProvider(provider);
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  stack = await plainStack();
  client = new Client(stack.address);
});
afterAll(async () => {
  await client.close();
  trace.disable();
  context.disable();
  propagation.disable();
});

type Step = Record<string, unknown> & { readonly do: string };

const SCRIPT: Step[] = [
  { do: "generate", max_tokens: 1 },
  { do: "append", token_ids: range(20), logprobs: 1 },
  { do: "turn", token_ids: [5, 6, 7], max_tokens: 10, temperature: 1, seed: 5, logprobs: 2 },
  { do: "turn", token_ids: range(90, 100), max_tokens: 30, top_k: 20, temperature: 0.8, seed: 6, min_p: 0.01 },
  { do: "append", token_ids: [5000] },
  { do: "turn", token_ids: [1], max_tokens: 0 },
  { do: "rewind", history_length: 33 },
  { do: "rewind", history_length: 40 },
  { do: "generate", max_tokens: 8, stop_token_sequences: [[1], [2]], seed: 7, logprobs: 0 },
  { do: "close" },
];

const camel = (name: string): string => name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());

/** Names as Python has them, without what differs each time. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(plain);
  }
  if (typeof value !== "object" || value === null) {
    return value;
  }
  const entries = Object.entries(JSON.parse(JSON.stringify(value)) as object)
    .filter(([name]) => !["prefillSeconds", "totalSeconds", "opId"].includes(name))
    .map(([name, each]) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), plain(each)]);
  return Object.fromEntries(entries);
}

async function heard(generation: Generation): Promise<unknown> {
  const tokenIds = await generation.all();
  const { appended, truncated, details, done } = generation;
  return plain({ tokenIds, appended, truncated, details, done });
}

async function step(session: Session, { do: what, token_ids, history_length, ...given }: Step): Promise<unknown> {
  const tokenIds = token_ids as number[];
  const options = Object.fromEntries(Object.entries(given).map(([name, value]) => [camel(name), value])) as {
    maxTokens: number;
  };
  try {
    switch (what) {
      case "append":
        return plain(await session.append(tokenIds, options as AppendOptions));
      case "rewind":
        return plain(await session.rewind(history_length as number));
      case "close":
        return { final: await session.close() };
      case "turn":
        return await heard(session.turn(tokenIds, options));
      default:
        return await heard(session.generate(options));
    }
  } catch (error) {
    if (error instanceof KakeyaError) {
      return { error: error.name, reason: error.reason, status: error.status };
    }
    throw error;
  }
}

/** A span, wherever it was made. */
interface Made {
  readonly service: string;
  readonly name: string;
  readonly id: string;
  readonly parent: string | undefined;
  readonly is_error: boolean;
}

/** One of this process, as the others' are told. */
const ours = (span: ReadableSpan): Made => ({
  service: "application",
  name: span.name,
  id: span.spanContext().spanId,
  parent: span.parentSpanContext?.spanId,
  is_error: span.status.code === SpanStatusCode.ERROR,
});

/** Of the calls themselves; when a runtime takes snapshots, and how it comes back to one, is its own. */
const CALLS = /\.(RuntimeService\/|VerifierService\/(Append|Generate)$)/;

/** What is below a span, all the way down, in no order. */
function below(id: string, spans: readonly Made[]): string[] {
  return spans
    .filter(({ parent, name }) => parent === id && CALLS.test(name))
    .map((span) => {
      const what = `${span.service} ${span.name}${span.is_error ? " failed" : ""}`;
      const isItsOwn = span.service === "kakeya-router" && span.name.endsWith("/RewindSession");
      return `${what}(${isItsOwn ? "" : below(span.id, spans).join(", ")})`;
    })
    .sort();
}

test("one conversation through both SDKs has the same tokens, events and errors, and is one trace", async () => {
  const tracer = trace.getTracer("app");
  const root = tracer.startSpan("both");
  const [mine, theirs] = ["by TypeScript", "by Python"].map((name) =>
    tracer.startSpan(name, {}, trace.setSpan(context.active(), root)),
  );
  if (mine === undefined || theirs === undefined) {
    throw new Error("two spans were begun");
  }
  const headers = {};
  propagation.inject(trace.setSpan(context.active(), theirs), headers);
  const answered = await stack.do("converse", { script: SCRIPT, trace_context: headers });
  const found = await context.with(trace.setSpan(context.active(), mine), async () => {
    const session = await client.createSession();
    const steps = [];
    for (const each of SCRIPT) {
      steps.push(await step(session, each));
    }
    return steps;
  });
  expect(found).toEqual(answered);
  expect(found.filter((each) => "error" in (each as object))).toHaveLength(4);

  const { traceId } = root.spanContext();
  await vi.waitFor(
    async () => {
      const spans = [
        ...exporter.getFinishedSpans().map(ours),
        ...((await stack.do("spans", { trace_id: traceId })) as Made[]),
      ];
      const [byTypeScript, byPython] = [mine, theirs].map((span) => below(span.spanContext().spanId, spans));
      expect(byTypeScript).toEqual(byPython);
      const worker = "kakeya.worker.v1.VerifierService/Generate";
      const generate = `kakeya-router ${worker}(kakeya-worker ${worker}())`;
      expect(byTypeScript?.filter((each) => each.includes(generate)).length).toBeGreaterThanOrEqual(3);
      expect(byTypeScript?.filter((each) => each.includes("RuntimeService/Turn failed("))).toHaveLength(1);
    },
    { timeout: 60_000, interval: 100 },
  );
});
