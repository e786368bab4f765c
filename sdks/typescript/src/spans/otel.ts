/** OpenTelemetry behind the SDK's `Tracer`; imported only when a program asks for spans. */

import type { Message } from "@bufbuild/protobuf";
import { status as codes } from "@grpc/grpc-js";
import {
  context,
  isSpanContextValid,
  propagation,
  SpanKind,
  SpanStatusCode,
  trace,
  type Attributes,
  type Context,
  type Span as ApiSpan,
} from "@opentelemetry/api";

import { KakeyaError } from "../errors.js";
import type { Span, SpanOptions, Tracer } from "./tracing.js";

/** Fields of the contract's messages and the span attributes they become. */
const ATTRIBUTES: Readonly<Record<string, string>> = {
  sessionId: "gen_ai.conversation.id",
  historyLength: "kakeya.history_length",
  finalHistoryLength: "kakeya.history_length",
  kvLiveBytes: "kakeya.kv_live_bytes",
  generatedTokenCount: "kakeya.num_generated_tokens",
};

const KINDS = { client: SpanKind.CLIENT, internal: SpanKind.INTERNAL };

/** A span that is never the current one: it may outlive the function that opened it. */
class OtelSpan implements Span {
  readonly context: Context;
  readonly #span: ApiSpan;
  readonly #isCall: boolean;
  #numEvicted = 0;

  constructor(span: ApiSpan, parent: Context, isCall: boolean) {
    this.context = trace.setSpan(parent, span);
    this.#span = span;
    this.#isCall = isCall;
  }

  get headers(): Record<string, string> {
    const carrier: Record<string, string> = {};
    propagation.inject(this.context, carrier);
    return carrier;
  }

  get traceId(): string {
    const spanContext = this.#span.spanContext();
    return isSpanContextValid(spanContext) ? spanContext.traceId : ""; // nobody records: all zeros name no trace
  }

  describe(message: Message): void {
    const values = message as unknown as Readonly<Record<string, unknown>>;
    for (const [field, attribute] of Object.entries(ATTRIBUTES)) {
      if (values[field] !== undefined) {
        this.#span.setAttribute(attribute, attributeValue(values[field]));
      }
    }
    // A Turn says it twice: of its append, and of what it generates.
    if (typeof values.evictedTokenCount === "bigint") {
      this.#numEvicted += Number(values.evictedTokenCount);
      this.#span.setAttribute("kakeya.num_evicted_tokens", this.#numEvicted);
    }
    if (Array.isArray(values.tokenIds)) {
      this.#span.setAttribute("kakeya.num_new_tokens", values.tokenIds.length);
    }
  }

  end(error?: unknown): void {
    if (!this.#span.isRecording()) {
      return;
    }
    if (this.#isCall) {
      this.#span.setAttribute("rpc.grpc.status_code", statusCode(error));
    }
    if (error !== undefined) {
      const said = error instanceof KakeyaError ? error.reason : "";
      this.#span.setStatus({ code: SpanStatusCode.ERROR, message: said || nameOf(error) });
    }
    this.#span.end();
  }
}

/** Spans of the application's tracer provider. */
export class OtelTracer implements Tracer {
  readonly #tracer = trace.getTracer("@kakeya/sdk");

  start(name: string, { kind, sessionId = "", parent }: SpanOptions): Span {
    const attributes: Attributes = {};
    if (kind === "client") {
      const [service, method] = name.split("/");
      Object.assign(attributes, { "rpc.system": "grpc", "rpc.service": service, "rpc.method": method });
    }
    if (sessionId !== "") {
      attributes["gen_ai.conversation.id"] = sessionId;
    }
    const above = parent instanceof OtelSpan ? parent.context : context.active();
    return new OtelSpan(
      this.#tracer.startSpan(name, { kind: KINDS[kind], attributes }, above),
      above,
      kind === "client",
    );
  }
}

function attributeValue(value: unknown): string | number {
  return typeof value === "bigint" ? Number(value) : (value as string | number);
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : typeof error;
}

function statusCode(error: unknown): number {
  if (error === undefined) {
    return codes.OK;
  }
  // Whatever is no error of the SDK's tore the call down from this side.
  return error instanceof KakeyaError ? codes[error.status] : codes.CANCELLED;
}
