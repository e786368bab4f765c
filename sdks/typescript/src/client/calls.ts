/** Calls of the runtime's contract: each attempt has a span and a typed error, and may be repeated. */

import { create, type DescMessage, type Message, type MessageShape } from "@bufbuild/protobuf";

import { CloseSessionRequestSchema, RuntimeService } from "../_generated/kakeya/v1/runtime_pb.js";
import { Cancelled, type KakeyaError } from "../errors.js";
import { chooseTracer, type Span, type Tracer } from "../spans/tracing.js";
import type { ApiKey } from "../transport/api-key.js";
import { Deadline } from "../transport/deadline.js";
import { Retry } from "../transport/retry.js";
import type { Stream } from "../transport/stream.js";
import type { CallMetadata, StreamMethod, Transport, UnaryMethod } from "../transport/transport.js";
import type { CallOptions } from "./options.js";

/** A router that is slow, or that comes back, is told in that time. */
const GIVE_UP_SECONDS = 30;
const LAST_ERRANDS_SECONDS = 2;

/** How the calls of a client behave. */
export interface CallsOptions {
  /** Of calls whose work does not depend on the number of tokens. */
  readonly timeoutSeconds: number;
  /** Of AppendTokens, Generate, Turn and RewindSession. */
  readonly operationTimeoutSeconds: number;
  /** How often a call that is safe to repeat may meet UNAVAILABLE. */
  readonly maxAttempts: number;
  /** Undefined for spans if the application has OpenTelemetry set up. */
  readonly tracing: boolean | undefined;
}

/** What calls of one connection share, under whichever key. */
interface Shared {
  readonly transport: Transport;
  readonly errands: Set<Promise<unknown>>;
  tracer: Tracer | undefined;
  /** False once the runtime has shown that it is of a version without Turn. */
  hasTurn: boolean;
  isClosed: boolean;
}

/** The calls of one client. */
export class Calls {
  readonly options: CallsOptions;
  readonly #apiKey: ApiKey | undefined;
  readonly #shared: Shared;

  constructor(transport: Transport, apiKey: ApiKey | undefined, options: CallsOptions, shared?: Shared) {
    this.options = options;
    this.#apiKey = apiKey;
    this.#shared = shared ?? { transport, errands: new Set(), tracer: undefined, hasTurn: true, isClosed: false };
  }

  /** The same calls over the same connection, with another key. */
  withApiKey(apiKey: ApiKey | undefined): Calls {
    return new Calls(this.#shared.transport, apiKey, this.options, this.#shared);
  }

  /** False once the runtime has shown that it is of a version without Turn. */
  get hasTurn(): boolean {
    return this.#shared.hasTurn;
  }

  /** The runtime has shown that it is of a version without Turn. */
  knowsNoTurn(): void {
    this.#shared.hasTurn = false;
  }

  /** The end of a call of fixed work. */
  deadline({ timeoutSeconds, signal }: CallOptions, extraSeconds = 0): Deadline {
    return new Deadline((timeoutSeconds ?? this.options.timeoutSeconds) + extraSeconds, signal);
  }

  /** The end of an operation. */
  operationDeadline({ timeoutSeconds, signal }: CallOptions): Deadline {
    return new Deadline(timeoutSeconds ?? this.options.operationTimeoutSeconds, signal);
  }

  /**
   * One attempt of a call.
   *
   * @throws KakeyaError
   */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: UnaryMethod<I, O>,
    request: MessageShape<I>,
    deadline: Deadline,
    parent?: Span,
  ): Promise<MessageShape<O>> {
    const span = await this.#start(method, request, parent);
    try {
      const response = await this.#shared.transport.unary(method, request, deadline, this.#metadata(span));
      span.describe(request);
      span.describe(response);
      span.end();
      return response;
    } catch (error) {
      span.end(error);
      throw error;
    }
  }

  /**
   * A call of fixed work that is safe to repeat.
   *
   * @throws KakeyaError
   */
  repeated<I extends DescMessage, O extends DescMessage>(
    method: UnaryMethod<I, O>,
    request: MessageShape<I>,
    options: CallOptions,
  ): Promise<MessageShape<O>> {
    const retry = new Retry(this.deadline(options), { maxAttempts: this.options.maxAttempts });
    return retry.run(() => this.unary(method, request, retry.deadline));
  }

  /** Starts a call with a stream of responses. */
  async stream<I extends DescMessage, O extends DescMessage>(
    method: StreamMethod<I, O>,
    request: MessageShape<I>,
    deadline: Deadline,
    parent?: Span,
  ): Promise<StreamCall<MessageShape<O>>> {
    const span = await this.#start(method, request, parent);
    return new StreamCall(this.#shared.transport.stream(method, request, deadline, this.#metadata(span)), span);
  }

  /** Opens a span that embraces calls. */
  async embrace(name: string, sessionId: string): Promise<Span> {
    return (await this.#tracer()).start(name, { kind: "internal", sessionId });
  }

  /** Has the session closed, in a while, that a CreateSession without an answer may have opened. */
  giveUp(requestId: string): void {
    const request = create(CloseSessionRequestSchema, { requestId });
    const errand = this.repeated(RuntimeService.method.closeSession, request, { timeoutSeconds: GIVE_UP_SECONDS })
      // Refused, or this client is closed by now: then its time to live ends it, and nobody is left to be told.
      .catch(() => undefined)
      .finally(() => this.#shared.errands.delete(errand));
    this.#shared.errands.add(errand);
  }

  /** Cancels what is running and disconnects, after a moment for what was given up; then nothing happens. */
  async close(): Promise<void> {
    const { errands, transport } = this.#shared;
    if (errands.size > 0) {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise((resolve) => (timer = setTimeout(resolve, LAST_ERRANDS_SECONDS * 1000)));
      await Promise.race([Promise.all(errands), late]);
      clearTimeout(timer);
    }
    this.#shared.isClosed = true;
    transport.close();
  }

  async #tracer(): Promise<Tracer> {
    return (this.#shared.tracer ??= await chooseTracer(this.options.tracing));
  }

  async #start(
    method: UnaryMethod<DescMessage, DescMessage> | StreamMethod<DescMessage, DescMessage>,
    request: Message,
    parent?: Span,
  ): Promise<Span> {
    const tracer = await this.#tracer();
    if (this.#shared.isClosed) {
      throw new Error("the client is closed");
    }
    return tracer.start(`${method.parent.typeName}/${method.name}`, {
      kind: "client",
      sessionId: sessionIdOf(request),
      parent,
    });
  }

  #metadata(span: Span): CallMetadata {
    const headers = { ...(this.#apiKey && { authorization: this.#apiKey.authorization }), ...span.headers };
    return { headers, traceId: span.traceId };
  }
}

/** A running call with a stream of responses, and its span, which ends when the stream does. */
export class StreamCall<T> {
  readonly #stream: Stream<T>;

  constructor(
    stream: Stream<T>,
    readonly span: Span,
  ) {
    this.#stream = stream;
    stream.whenOver((error) => {
      span.end(error);
    });
  }

  /** Names the operation; "" before the first response, and where the runtime has not said it. */
  get opId(): string {
    return this.#stream.opId;
  }

  /**
   * The next response, undefined at the end.
   *
   * @throws KakeyaError; DeadlineExceeded where it does not come within so many seconds.
   */
  read(withinSeconds?: number): Promise<T | undefined> {
    return this.#stream.read(withinSeconds);
  }

  /** Tells the server to stop; nothing happens if the stream is at its end. */
  cancel(error: KakeyaError = new Cancelled("the call was cancelled from this side")): void {
    this.#stream.cancel(error);
    this.span.end(error);
  }
}

function sessionIdOf(request: Message): string {
  const { sessionId, session } = request as { sessionId?: string; session?: { sessionId: string } };
  return sessionId ?? session?.sessionId ?? "";
}
