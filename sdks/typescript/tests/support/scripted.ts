/** A server of the contract for faults that a real runtime cannot be brought to: a test writes what it answers. */

import { create, fromBinary, toBinary, type DescMethod, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import { anyPack, durationFromMs } from "@bufbuild/protobuf/wkt";
import {
  Metadata,
  Server,
  ServerCredentials,
  status as codes,
  type sendUnaryData,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceDefinition,
  type UntypedServiceImplementation,
} from "@grpc/grpc-js";

import { AdminService } from "../../src/_generated/kakeya/admin/v1/admin_pb.js";
import * as wire from "../../src/_generated/kakeya/v1/runtime_pb.js";
import { ErrorInfoSchema, RetryInfoSchema } from "../../src/_generated/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../src/_generated/google/rpc/status_pb.js";
import type { Status } from "../../src/index.js";

/** Ends a call as a Kakeya service ends it; without a reason as something that is no Kakeya does. */
export class Refusal extends Error {
  constructor(
    readonly status: Status,
    readonly reason = "",
    readonly details: { metadata?: Record<string, string>; retryAfterSeconds?: number; trailer?: Buffer } = {},
  ) {
    super(`scripted ${reason || status}`);
  }

  get trailers(): Metadata {
    const metadata = new Metadata();
    const { retryAfterSeconds, trailer } = this.details;
    const details = [];
    if (this.reason) {
      const info = { reason: this.reason, domain: "kakeya", metadata: this.details.metadata ?? {} };
      details.push(anyPack(ErrorInfoSchema, create(ErrorInfoSchema, info)));
    }
    if (retryAfterSeconds !== undefined) {
      const retryDelay = durationFromMs(retryAfterSeconds * 1000);
      details.push(anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelay })));
    }
    const status = toBinary(StatusSchema, create(StatusSchema, { code: codes[this.status], details }));
    metadata.set("grpc-status-details-bin", trailer ?? Buffer.from(status));
    return metadata;
  }
}

/** Sends nothing more, and keeps the call open until its client leaves. */
export const STALL = Symbol("stall");

type Call = ServerUnaryCall<Message, unknown> & ServerWritableStream<Message, unknown>;
type Answer = (request: never, headers: Metadata) => unknown;

/** One call that came. */
export interface Came {
  readonly method: string;
  readonly request: Message;
  readonly headers: Metadata;
}

export class Scripted implements AsyncDisposable {
  address = "";
  /** In the order in which they came. */
  readonly came: Came[] = [];
  /** Streams whose client left. */
  numCancelled = 0;
  readonly #server = new Server();

  /**
   * @param answers - by the method's name in small letters: a response or a promise of one; of a stream an async generator.
   * An array has one for each call, of which the last stays. What is thrown ends the call.
   */
  static async start(answers: Record<string, Answer | Answer[]>, port = 0): Promise<Scripted> {
    const scripted = new Scripted();
    for (const service of [wire.RuntimeService, AdminService]) {
      const definition: Record<string, ServiceDefinition[string]> = {};
      const handlers: UntypedServiceImplementation = {};
      for (const method of service.methods) {
        definition[method.name] = definitionOf(method);
        const handle = (call: Call, callback: sendUnaryData<unknown>): void => {
          void scripted.#answer(method, answers[method.localName], call, callback);
        };
        handlers[method.name] = handle as UntypedServiceImplementation[string];
      }
      scripted.#server.addService(definition, handlers);
    }
    const bound = await new Promise<number>((resolve, reject) => {
      scripted.#server.bindAsync(`127.0.0.1:${port}`, ServerCredentials.createInsecure(), (error, number) => {
        if (error) {
          reject(error);
        } else {
          resolve(number);
        }
      });
    });
    scripted.address = `127.0.0.1:${bound}`;
    return scripted;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#server.forceShutdown();
    return Promise.resolve();
  }

  methods(): string[] {
    return this.came.map(({ method }) => method);
  }

  async #answer(
    method: DescMethod,
    answers: Answer | Answer[] | undefined,
    call: Call,
    callback: sendUnaryData<unknown>,
  ): Promise<void> {
    this.came.push({ method: method.name, request: call.request, headers: call.metadata });
    const answer = Array.isArray(answers) ? (answers.length > 1 ? answers.shift() : answers[0]) : answers;
    let isOver = false;
    call.on("cancelled", () => {
      this.numCancelled += isOver ? 0 : 1;
    });
    try {
      if (answer === undefined) {
        throw new Refusal("UNIMPLEMENTED", "");
      }
      const answered = answer(call.request as never, call.metadata);
      if (method.methodKind === "unary") {
        const response = await answered;
        if (response !== STALL) {
          callback(null, response);
        }
        return;
      }
      const opId = new Metadata();
      opId.set("kakeya-op-id", "scripted-op");
      call.sendMetadata(opId);
      for await (const response of answered as AsyncIterable<unknown>) {
        if (response === STALL) {
          return;
        }
        if (!call.write(response)) {
          await new Promise((resolve) => call.once("drain", resolve));
        }
      }
      isOver = true;
      call.end();
    } catch (error) {
      isOver = true;
      const refusal = error instanceof Refusal ? error : new Refusal("UNKNOWN");
      const failed = { code: codes[refusal.status], details: refusal.message, metadata: refusal.trailers };
      if (method.methodKind === "unary") {
        callback(failed);
      } else {
        call.emit("error", failed);
      }
    }
  }
}

function definitionOf(method: DescMethod): ServiceDefinition[string] {
  const serialize = (message: Message): Buffer => Buffer.from(toBinary(method.output, create(method.output, message)));
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    requestStream: false,
    responseStream: method.methodKind !== "unary",
    requestSerialize: () => Buffer.alloc(0),
    requestDeserialize: (bytes) => fromBinary(method.input, bytes),
    responseSerialize: serialize,
    responseDeserialize: () => undefined,
  };
}

/** Responses of a Generate. */
export const token = (tokenId: number): wire.GenerateResponse =>
  create(wire.GenerateResponseSchema, { payload: { case: "tokenId", value: tokenId } });

export const done = (init: MessageInitShape<typeof wire.GenerateDoneSchema> = {}): wire.GenerateResponse =>
  create(wire.GenerateResponseSchema, {
    payload: { case: "done", value: create(wire.GenerateDoneSchema, { historyLength: 5n, ...init }) },
  });

/** The same in a Turn. */
export const generated = (value: wire.GenerateResponse): wire.TurnResponse =>
  create(wire.TurnResponseSchema, { event: { case: "generated", value } });

export const opened = (sessionId = "s", historyLength = 0n): wire.CreateSessionResponse =>
  create(wire.CreateSessionResponseSchema, { sessionId, historyLength, vocabSize: 100 });

export const inSession = (sessionId = "s"): wire.TurnResponse =>
  create(wire.TurnResponseSchema, { event: { case: "session", value: opened(sessionId) } });

export const appended = (historyLength = 3n): wire.TurnResponse =>
  create(wire.TurnResponseSchema, {
    event: { case: "appended", value: create(wire.AppendTokensResponseSchema, { historyLength }) },
  });
