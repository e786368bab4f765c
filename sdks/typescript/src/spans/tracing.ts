/**
 * The spans of the SDK, behind a door that costs nothing while nobody asks for them.
 *
 * OpenTelemetry is imported by `otel` alone, and `otel` only by `chooseTracer`.
 */

import type { Message } from "@bufbuild/protobuf";

import { MissingExtra } from "../errors.js";
import type { CallMetadata } from "../transport/transport.js";

/** One span. */
export interface Span {
  /** What carries the span to the called service (W3C trace context). */
  readonly headers: CallMetadata["headers"];
  /** In hex; "" for none. */
  readonly traceId: string;
  /** Adds the lengths, bytes and counts of a request or response; never token ids. */
  describe(message: Message): void;
  /** Ends the span, as failed if there is an error. Only the first call counts. */
  end(error?: unknown): void;
}

/** How a span begins. */
export interface SpanOptions {
  /** client for a call, internal for what embraces calls. */
  readonly kind: "client" | "internal";
  /** Becomes gen_ai.conversation.id. */
  readonly sessionId?: string;
  /** One of the same tracer's; left out: the application's current span. */
  readonly parent?: Span | undefined;
}

/** Where spans come from. */
export interface Tracer {
  /**
   * Opens a span.
   *
   * @param name - of a client span, package.Service/Method.
   */
  start(name: string, options: SpanOptions): Span;
}

const NO_SPAN: Span = {
  headers: {},
  traceId: "",
  describe: () => undefined,
  end: () => undefined,
};

const NO_TRACER: Tracer = { start: () => NO_SPAN };

/** Where OpenTelemetry's API, of version 1, keeps what an application has registered. */
const REGISTERED = Symbol.for("opentelemetry.js.api.1");

/**
 * The tracer of a client.
 *
 * @param tracing - undefined for spans if the application has OpenTelemetry set up by now.
 * @throws MissingExtra `tracing` is true and OpenTelemetry is not installed.
 */
export async function chooseTracer(tracing: boolean | undefined): Promise<Tracer> {
  if (!(tracing ?? REGISTERED in globalThis)) {
    return NO_TRACER;
  }
  try {
    const { OtelTracer } = await import("./otel.js");
    return new OtelTracer();
  } catch (error) {
    throw new MissingExtra("tracing", "@opentelemetry/api", error);
  }
}
