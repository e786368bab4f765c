/** A client of a Kakeya runtime. */

import { create } from "@bufbuild/protobuf";

import * as wire from "../_generated/kakeya/v1/runtime_pb.js";
import {
  foundSession,
  listedSession,
  servedModel,
  type FoundSession,
  type ListedSession,
  type ServedModel,
} from "../results/sessions.js";
import type { WatchEvent } from "../results/watched.js";
import { chooseKey } from "../transport/api-key.js";
import { fill, numbered, tagList, tokenList, type TokenIds } from "../transport/fields.js";
import { generateRequest, isSampling } from "../transport/requests.js";
import { tlsCredentials } from "../transport/tls.js";
import { Transport } from "../transport/transport.js";
import { Admin } from "./admin.js";
import { Calls } from "./calls.js";
import { Generation } from "./generation.js";
import { Opening } from "./opening.js";
import { OpeningTurn } from "./opening-turn.js";
import type {
  CallOptions,
  ClientOptions,
  CreateSessionOptions,
  FindOptions,
  PlaceOptions,
  SamplingOptions,
  SessionOptions,
  TurnFoundOptions,
  TurnOptions,
  WatchOptions,
} from "./options.js";
import { PlaceTurn, type PlaceTurnOptions } from "./place-turn.js";
import { SearchTurn } from "./search-turn.js";
import { Session } from "./session.js";
import type { Turn } from "./turn.js";
import { watch } from "./watching.js";

const DEFAULT_ADDRESS = "localhost:50051";
const { method } = wire.RuntimeService;

/** A connection to a runtime; any number of sessions share it. With `await using` it disconnects when the block is left. */
export class Client implements AsyncDisposable {
  readonly #addresses: readonly string[];
  readonly #options: ClientOptions;
  readonly #checksHistory: boolean;
  #calls: Calls;

  /**
   * Nothing is sent before the first call.
   *
   * @param address - HOST:PORT of a router, or any target that gRPC knows; several, as an array or with commas: those after
   * the first are tried in turn where one cannot be reached or shuts down.
   * @throws RangeError the key has characters that no key has. What reading `apiKeyFile` throws.
   */
  constructor(address: string | readonly string[] = DEFAULT_ADDRESS, options: ClientOptions = {}) {
    this.#addresses = typeof address === "string" ? targets(address) : address;
    this.#options = options;
    this.#checksHistory = options.checkHistory ?? true;
    const transport = new Transport(this.#addresses, options.credentials);
    this.#calls = new Calls(transport, chooseKey(options.apiKey, options.apiKeyFile), {
      timeoutSeconds: options.timeoutSeconds ?? 60,
      operationTimeoutSeconds: options.operationTimeoutSeconds ?? Infinity,
      maxAttempts: options.maxAttempts ?? 5,
      tracing: options.tracing,
    });
  }

  /**
   * A client as the variables of the `kakeya` command say: $KAKEYA_ADDRESS, else localhost:50051; $KAKEYA_TLS_CA,
   * $KAKEYA_TLS_CERT and $KAKEYA_TLS_KEY, files in PEM, for TLS; $KAKEYA_API_KEY.
   *
   * @throws as the constructor and `tlsCredentials`.
   */
  static fromEnvironment(options: ClientOptions = {}): Client {
    const { KAKEYA_ADDRESS, KAKEYA_TLS_CA, KAKEYA_TLS_CERT, KAKEYA_TLS_KEY } = process.env;
    const given = Object.entries({ ca: KAKEYA_TLS_CA, cert: KAKEYA_TLS_CERT, key: KAKEYA_TLS_KEY }).filter(
      ([, file]) => file,
    );
    const credentials = given.length > 0 ? tlsCredentials(Object.fromEntries(given)) : undefined;
    return new Client(KAKEYA_ADDRESS === "" ? undefined : KAKEYA_ADDRESS, { credentials, ...options });
  }

  /** Calls of operators: keys, tokens, tenants, workers, and the sessions of all. */
  get admin(): Admin {
    return new Admin(this.#calls);
  }

  /**
   * A client that shows another key over the same connection, which closes with this one; "" for none.
   *
   * For servers that speak for many callers.
   *
   * @throws RangeError the key has characters that no key has.
   */
  withApiKey(apiKey: string): Client {
    const client = new Client(this.#addresses, { ...this.#options, apiKey });
    client.#calls = this.#calls.withApiKey(chooseKey(apiKey)); // and with it the connection
    return client;
  }

  /**
   * Opens a session: a lane of fixed size is reserved for it on one worker.
   *
   * The timeout should outlast the router's queue, in which the call waits; DeadlineExceeded gives up the place in it. Where
   * no answer is seen, a session that was opened all the same is closed in the background; `close` of the client waits for
   * that, 2 s at most.
   *
   * @throws KakeyaError NoCapacity when no lane is free and the runtime has no queue, QueueTimedOut or QueueFull where it has
   * one, QuotaExceeded, NoWorker when nobody serves the model with that fingerprint, InvalidField when no worker can hold so
   * many sinks or such a window. With `forkFrom`: SessionNotFound, OperationRunning while an operation runs on the source,
   * BoundaryNotReachable (`metadata.reachable` lists lengths that are), EmptyHistory.
   */
  async createSession(options: CreateSessionOptions = {}): Promise<Session> {
    const opened = await new Opening(this.#calls, options).open();
    return new Session(this.#calls, opened.sessionId, this.#checksHistory, opened);
  }

  /**
   * Attaches to a session that exists; nothing is sent.
   *
   * @param historyLength - of the session, where it is known, as `findSession` says it; left out: it is asked for.
   */
  session(sessionId: string, historyLength?: number): Session {
    const session = new Session(this.#calls, sessionId, this.#checksHistory);
    session.history.length = historyLength ?? null;
    return session;
  }

  /**
   * Opens a session, appends, generates and closes it, in one call, once the result is iterated, begun or collected.
   *
   * A session of which no answer was seen, or that the turn has failed to append to, is closed in the background.
   *
   * @throws InvalidRequest a value does not fit its field. Whatever else is wrong comes with the first answer.
   */
  turn(tokenIds: TokenIds, { ephemeral = true, ...options }: TurnOptions): Generation {
    const { place, session, sampling } = parted(options);
    const opening = this.#opening({ ...session, ephemeral }, place);
    const turn = new OpeningTurn(this.#calls, opening, tokenList(tokenIds), this.#checksHistory);
    return this.#generation(turn, place, sampling);
  }

  /**
   * A turn behind so many tokens of a session: in that itself where it ends there and is idle, else in a fork.
   *
   * The `session` of the result says which, once it has begun. There may be no tokens to append.
   *
   * @throws InvalidRequest as `turn`.
   */
  turnAt(sessionId: string, boundary: number, tokenIds: TokenIds, options: PlaceOptions): Generation {
    const { place, sampling } = parted(options);
    const turn = new PlaceTurn(this.#calls, sessionId, boundary, tokenList(tokenIds), this.#placeTurn(place));
    return this.#generation(turn, place, sampling);
  }

  /**
   * A turn in the session that tags find, as `findSession` finds it, looked for in the same call.
   *
   * Its beginning throws FoundElsewhere, and nothing has changed, where what is found is not expected, or would have to be
   * rewound first. `found` of the result is what was found, then too.
   *
   * @throws InvalidRequest as `turn`.
   */
  turnFound(
    tags: Iterable<Uint8Array>,
    tokenIds: TokenIds,
    { expected, opens, ...options }: TurnFoundOptions,
  ): Generation {
    const { place, session, sampling } = parted(options);
    const turn = new SearchTurn(this.#calls, tags, tokenList(tokenIds), {
      ...this.#placeTurn(place),
      model: session.model,
      expected: new Map(numbered(expected)),
      opens: opens ? this.#opening(session, place) : undefined,
    });
    return this.#generation(turn, place, sampling);
  }

  /**
   * The session of the key's tenant that has one of these tags (`tag` of a session); null: none has.
   *
   * The first tag that a session has counts, and of several sessions with it the one that came to it last.
   *
   * @param tags - at most 64, those of the deepest place of a conversation first.
   * @throws KakeyaError NoWorker where the model is not served, SessionNotFound where there is no such session.
   */
  async findSession(
    tags: Iterable<Uint8Array>,
    { model, sessionId, ...call }: FindOptions = {},
  ): Promise<FoundSession | null> {
    const request = create(wire.FindSessionRequestSchema, { tags: tagList(tags) });
    fill(wire.FindSessionRequestSchema, request, { model, sessionId });
    return foundSession(await this.#calls.repeated(method.findSession, request, call));
  }

  /**
   * The models that are served now, by name.
   *
   * @throws KakeyaError
   */
  async listModels(options: CallOptions = {}): Promise<ServedModel[]> {
    const request = create(wire.ListModelsRequestSchema);
    return (await this.#calls.repeated(method.listModels, request, options)).models.map(servedModel);
  }

  /**
   * The sessions of the key's tenant, in no order, fetched page by page as they are taken; without keys, those of no tenant.
   *
   * None is resumed or kept alive by it. One that is created or closed meanwhile may be missing. The timeout is of each page.
   *
   * @throws KakeyaError
   */
  async *listSessions(options: CallOptions = {}): AsyncGenerator<ListedSession, void> {
    const seen = new Set<string>();
    const request = create(wire.ListSessionsRequestSchema);
    do {
      const page = await this.#calls.repeated(method.listSessions, request, options);
      for (const session of page.sessions.filter(({ sessionId }) => !seen.has(sessionId))) {
        seen.add(session.sessionId);
        yield listedSession(session);
      }
      request.pageToken = page.nextPageToken;
    } while (request.pageToken !== "");
  }

  /**
   * First all that the key may see, then what changes, until you stop; `WatchedRuntime` adds it up.
   *
   * A key with the scope "admin" sees all sessions and workers, and so does everybody where no keys are asked for. Any other
   * key sees its tenant's sessions and the sums over all. Texts and tokens are shown to nobody. Who is slow misses what was
   * between. Where the connection breaks it begins anew, with an event that says so (`begins`).
   *
   * @throws KakeyaError InvalidField, Unauthenticated, also later on, when the key has been revoked; Unavailable after
   * `maxAttempts` in a row; AbortError.
   */
  watch(options: WatchOptions = {}): AsyncGenerator<WatchEvent, void> {
    return watch(this.#calls, options);
  }

  /** Cancels what is running and disconnects. Sessions stay on the server until closed or expired. */
  close(): Promise<void> {
    return this.#calls.close();
  }

  /** As `close`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #opening(session: SessionOptions & { ephemeral?: boolean }, { openTimeoutSeconds, signal }: PlaceOptions): Opening {
    return new Opening(this.#calls, { ...session, timeoutSeconds: openTimeoutSeconds, signal });
  }

  #placeTurn({ openTimeoutSeconds, signal }: PlaceOptions): PlaceTurnOptions {
    return { checksHistory: this.#checksHistory, opening: { timeoutSeconds: openTimeoutSeconds, signal } };
  }

  #generation(turn: Turn, place: PlaceOptions, sampling: SamplingOptions): Generation {
    turn.request.startTags = tagList(place.startTags ?? []);
    return new Generation(this.#calls, turn.history, generateRequest("", place.maxTokens, sampling), place, { turn });
  }
}

/** One target, or several with commas between; those of ipv4: and ipv6: are one that has several addresses. */
function targets(address: string): string[] {
  return /^ipv[46]:/.test(address) ? [address] : address.split(",").map((each) => each.trim());
}

/** Those of the turn itself, of a session, and of an answer. */
function parted(options: PlaceOptions & SessionOptions): {
  place: PlaceOptions;
  session: SessionOptions;
  sampling: SamplingOptions;
} {
  const { maxTokens, startTags, openTimeoutSeconds, timeoutSeconds, signal, ...rest } = options;
  const [sampling, session] = [true, false].map((wanted) =>
    Object.fromEntries(Object.entries(rest).filter(([name]) => isSampling(name) === wanted)),
  );
  return {
    place: { maxTokens, startTags, openTimeoutSeconds, timeoutSeconds, signal },
    session: session ?? {},
    sampling: sampling ?? {},
  };
}
