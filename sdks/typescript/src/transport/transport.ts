/** Connections to a runtime: to each of its addresses one for streams and one for other calls, opened when needed. */

import { toBinary, fromBinary, type DescMessage, type DescMethod, type MessageShape } from "@bufbuild/protobuf";
import {
  Client,
  credentials as grpcCredentials,
  Metadata,
  status,
  type ChannelCredentials,
  type ChannelOptions,
  type ServiceError,
} from "@grpc/grpc-js";

import { Cancelled, ConnectionFailed, Draining, type KakeyaError } from "../errors.js";
import { onAbort, type Deadline } from "./deadline.js";
import { isHere } from "./proxy.js";
import { translate } from "./rpc-errors.js";
import { QUICK } from "./quick.js";
import { Stream } from "./stream.js";

const OPTIONS: ChannelOptions = {
  // A runtime that restarts is back within seconds; gRPC would wait up to two minutes before it looks again.
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2_000,
  // Finds a peer that vanished without a word while a call waits for it: calls have no deadline of their own.
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  // What is safe to repeat is known here alone.
  "grpc.enable_retries": 0,
  // Breaks are seen per client, not shared with others of the process.
  "grpc.use_local_subchannel_pool": 1,
  // As the command has it: lists of keys, tokens and tenants come in one answer.
  "grpc.max_receive_message_length": 256 << 20,
};

// A stream that nobody reads takes in what node buffers, 16 KB or from node 22 on 64 KB (2,000 or 7,000 plain tokens), and
// this much more; then its row at the worker pauses. By gRPC's own measure it would fill the window of the connection, on
// which all other calls would wait. With this one 128 such streams do; a runtime stops those that are not read for a minute.
const STREAM_OPTIONS: ChannelOptions = { ...OPTIONS, "grpc-node.flow_control_window": 512 };

/** What goes with a call besides its request. */
export interface CallMetadata {
  /** Names and values, in ASCII. */
  readonly headers: Readonly<Record<string, string>>;
  /** Of the trace that the call is part of, "" for none. */
  readonly traceId: string;
}

/** A method of the contract with one response. */
export type UnaryMethod<I extends DescMessage, O extends DescMessage> = DescMethod & {
  readonly methodKind: "unary";
  readonly input: I;
  readonly output: O;
};

/** A method of the contract with a stream of responses. */
export type StreamMethod<I extends DescMessage, O extends DescMessage> = DescMethod & {
  readonly methodKind: "server_streaming";
  readonly input: I;
  readonly output: O;
};

interface Running {
  cancel(error: KakeyaError): void;
}

export class Transport {
  readonly #addresses: readonly string[];
  readonly #credentials: ChannelCredentials;
  readonly #clients = new Map<string, Client>();
  readonly #running = new Set<Running>();
  #current = 0;

  /**
   * @param addresses - those after the first are tried, in turn, where one cannot be reached or shuts down.
   */
  constructor(addresses: readonly string[], credentials: ChannelCredentials = grpcCredentials.createInsecure()) {
    this.#addresses = addresses;
    this.#credentials = credentials;
  }

  /**
   * One response.
   *
   * @throws KakeyaError
   */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: UnaryMethod<I, O>,
    request: MessageShape<I>,
    deadline: Deadline,
    { headers, traceId }: CallMetadata,
  ): Promise<MessageShape<O>> {
    deadline.throwIfAborted();
    const translated = this.#translator(traceId);
    return new Promise((resolve, reject) => {
      const call = this.#client(OPTIONS).makeUnaryRequest(
        pathOf(method),
        serializer(method.input),
        deserializer(method.output),
        request,
        metadataOf(headers),
        { deadline: deadline.date },
        (error, response) => {
          leave();
          this.#running.delete(running);
          if (error) {
            reject(translated(error));
          } else {
            resolve(response as MessageShape<O>);
          }
        },
      );
      const running: Running = {
        cancel: (error) => {
          reject(error);
          call.cancel();
        },
      };
      const leave = onAbort(deadline.signal, (error) => {
        running.cancel(error);
      });
      this.#running.add(running);
    });
  }

  /** Starts a call with a stream of responses, which its `signal` does not end: who reads it sees to that. */
  stream<I extends DescMessage, O extends DescMessage>(
    method: StreamMethod<I, O>,
    request: MessageShape<I>,
    deadline: Deadline,
    { headers, traceId }: CallMetadata,
  ): Stream<MessageShape<O>> {
    const call = this.#client(STREAM_OPTIONS).makeServerStreamRequest(
      pathOf(method),
      serializer(method.input),
      deserializer(method.output),
      request,
      metadataOf(headers),
      { deadline: deadline.date },
    );
    const stream = new Stream(call, this.#translator(traceId));
    this.#running.add(stream);
    call.on("status", () => this.#running.delete(stream));
    return stream;
  }

  /** Cancels what is running and disconnects. */
  close(): void {
    for (const call of this.#running) {
      call.cancel(new Cancelled("the call was cancelled from this side"));
    }
    for (const client of this.#clients.values()) {
      client.close();
    }
  }

  get #address(): string {
    return this.#addresses[this.#current % this.#addresses.length] ?? "";
  }

  #client(options: ChannelOptions): Client {
    const address = this.#address;
    const name = `${options === STREAM_OPTIONS ? "streams" : "calls"} ${address}`;
    let client = this.#clients.get(name);
    if (client === undefined) {
      const direct = isHere(address) ? { "grpc.enable_http_proxy": 0 } : {};
      client = new Client(address, this.#credentials, { ...options, ...direct });
      this.#clients.set(name, client);
    }
    return client;
  }

  /** What makes errors of a call that begins now; the next call goes elsewhere where this address is of no use. */
  #translator(traceId: string): (error: ServiceError) => KakeyaError {
    const address = this.#address;
    return (error) => {
      const translated = translate(error, address, traceId);
      const isAway = translated instanceof ConnectionFailed || translated instanceof Draining;
      if (isAway && error.code === status.UNAVAILABLE && address === this.#address) {
        this.#current += 1;
      }
      return translated;
    };
  }
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function serializer<I extends DescMessage>(schema: I): (message: MessageShape<I>) => Buffer {
  return (message) => {
    const bytes = toBinary(schema, message);
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  };
}

function deserializer<O extends DescMessage>(schema: O): (bytes: Buffer) => MessageShape<O> {
  const quick = QUICK.get(schema) as ((bytes: Uint8Array) => MessageShape<O> | undefined) | undefined;
  const any = (bytes: Buffer): MessageShape<O> => fromBinary(schema, bytes);
  return quick === undefined ? any : (bytes) => quick(bytes) ?? any(bytes);
}

function metadataOf(headers: Readonly<Record<string, string>>): Metadata {
  const metadata = new Metadata();
  for (const [name, value] of Object.entries(headers)) {
    metadata.set(name, value);
  }
  return metadata;
}
