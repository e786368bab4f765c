/** What the runtime says of sessions as a whole, and of the models that serve them. */

import * as wire from "../_generated/kakeya/v1/runtime_pb.js";
import { invalid } from "../transport/fields.js";
import { number64 } from "./number64.js";
import { sight, type Sight } from "./turns.js";

/**
 * What happens when the history outgrows sink and window.
 *
 * "evict": the oldest tokens of the window are forgotten. "refuse": nothing is; an append that does not fit throws
 * HistoryFull, a generation stops as "truncated".
 */
export type OverflowPolicy = "evict" | "refuse";

/** Where a session stands. One that this version does not know is "unspecified". */
export type SessionState = "unspecified" | "opening" | "open" | "closing" | "failed" | "lost" | "parked";

/**
 * What a place of a history is, that can have tags.
 *
 * "head": the end of what conversations begin with alike, such as system message and tools. "answer_start": where an
 * answer begins. "answer_end": where an answer has ended. One that this version does not know is "unspecified".
 */
export type PlaceKind = "head" | "answer_start" | "answer_end" | "unspecified";

/** A session as the router has it on record. */
export interface SessionInfo extends Sight {
  /** Times the lane differed from what the history demands. */
  readonly numInv1Violations: number;
  /** Times the committed position fell without a rewind. */
  readonly numInv2Violations: number;
  /** Since its last operation. */
  readonly idleSeconds: number;
  readonly state: SessionState;
  /** Its whole lane, slack included. */
  readonly reservedBytes: number;
  /**
   * Whether its bits depend on its tokens, sink, window and the fingerprint alone; not any more once it has gone on under
   * another fingerprint.
   */
  readonly exact: boolean;
  /** Digest of all that the bits depend on, of the worker that it is on, or was on last. */
  readonly fingerprint: string;
  /** What serves it. */
  readonly model: string;
  /** Id of the worker that holds its lane; empty while it is parked. */
  readonly worker: string;
  /** Rises with each new lease on the session. */
  readonly epoch: number;
  /** History lengths at which its last turns ended, at most four, ascending: where others can branch off. */
  readonly boundaries: readonly number[];
  /** Whether it may go on under another fingerprint. */
  readonly inexactResume: boolean;
  /** Drafts of its proposer that were checked, over all its answers that came to their end. */
  readonly numDraftedTokens: number;
  /** Those that were right. */
  readonly numAcceptedTokens: number;
}

/** What a list says of a session; its `info` says more. */
export interface ListedSession {
  /** As a client's `session` takes it, to go on with it. */
  readonly id: string;
  /** That it was created with. */
  readonly label: string;
  /** What serves it. */
  readonly model: string;
  readonly state: SessionState;
  /** Tokens of the session so far. */
  readonly historyLength: number;
  /** Bytes of KV that the verifier really holds for the session now. */
  readonly kvLiveBytes: number;
  /** Its whole lane, slack included; 0 while it is parked. */
  readonly reservedBytes: number;
  /** Since its last operation; 0 while one runs. */
  readonly idleSeconds: number;
}

/** After parking. */
export interface ParkResult {
  /** Tokens of the session, all of which are kept. */
  readonly historyLength: number;
  /** Of the lane that another session may have now; 0 where it had none any more. */
  readonly freedBytes: number;
}

/** A session that has a tag, and where. */
export interface FoundSession {
  /** As a client's `session` takes it, to go on with it. */
  readonly id: string;
  /** Of the place. */
  readonly kind: PlaceKind;
  /** Tokens before it. */
  readonly place: number;
  /** Which of the tags it was, from 0. */
  readonly tagIndex: number;
  /** The history ends there, and no operation runs: the session itself can go on. Else a fork of it can. */
  readonly isIdleEnd: boolean;
  /** No place beyond it has tags; what comes after it can be rewound. */
  readonly isLast: boolean;
  /** Tokens of the session now. */
  readonly historyLength: number;
}

/** A model that the runtime serves. */
export interface ServedModel {
  /** As `model` of a new session takes it. */
  readonly name: string;
  /** What its largest lane keeps: sinks and window of a session fit into this. */
  readonly numLaneTokens: number;
  /** Token ids are below it. */
  readonly vocabSize: number;
  /** It serves sessions that name no model. */
  readonly isDefault: boolean;
  /** SHA-256 in hex of its tokenizer.json in canonical form; "" where its workers bring none or disagree. */
  readonly tokenizerDigest: string;
  /** Of that lane as its worker was started: what a session has that names none; 0 from an older router. */
  readonly sink: number;
  /** As `sink`. */
  readonly window: number;
  /** Bytes of KV that a token takes there, so what a larger window would cost; 0 from an older router. */
  readonly kvBytesPerToken: number;
  /** What the router knows of the contract; none of an older router. */
  readonly features: readonly string[];
}

const STATES: Readonly<Record<wire.SessionState, SessionState>> = {
  [wire.SessionState.UNSPECIFIED]: "unspecified",
  [wire.SessionState.OPENING]: "opening",
  [wire.SessionState.OPEN]: "open",
  [wire.SessionState.CLOSING]: "closing",
  [wire.SessionState.FAILED]: "failed",
  [wire.SessionState.LOST]: "lost",
  [wire.SessionState.PARKED]: "parked",
};

const PLACE_KINDS: Readonly<Record<PlaceKind, wire.PlaceKind>> = {
  head: wire.PlaceKind.HEAD,
  answer_start: wire.PlaceKind.ANSWER_START,
  answer_end: wire.PlaceKind.ANSWER_END,
  unspecified: wire.PlaceKind.UNSPECIFIED,
};

const OVERFLOW_POLICIES: Readonly<Record<OverflowPolicy, wire.OverflowPolicy>> = {
  evict: wire.OverflowPolicy.EVICT,
  refuse: wire.OverflowPolicy.REFUSE,
};

function sessionState(state: wire.SessionState): SessionState {
  return (STATES as Partial<typeof STATES>)[state] ?? "unspecified";
}

/** Of a record. */
export function stateOfName(name: string): SessionState {
  return Object.values(STATES).find((state) => state === name) ?? "unspecified";
}

/**
 * @throws InvalidField there is no such kind.
 */
export function placeKindToWire(kind: PlaceKind): wire.PlaceKind {
  if (!Object.hasOwn(PLACE_KINDS, kind)) {
    throw invalid("kind", `${kind} is none of ${Object.keys(PLACE_KINDS).join(", ")}`);
  }
  return PLACE_KINDS[kind];
}

/**
 * @throws InvalidField there is no such policy.
 */
export function overflowPolicyToWire(policy: OverflowPolicy): wire.OverflowPolicy {
  if (!Object.hasOwn(OVERFLOW_POLICIES, policy)) {
    throw invalid("on_overflow", `${policy} is none of ${Object.keys(OVERFLOW_POLICIES).join(", ")}`);
  }
  return OVERFLOW_POLICIES[policy];
}

export function sessionInfo(response: wire.GetSessionInfoResponse): SessionInfo {
  return {
    ...sight(response),
    numInv1Violations: number64(response.cacheInvariantInv1Violations),
    numInv2Violations: number64(response.cacheInvariantInv2Violations),
    idleSeconds: response.idleSeconds,
    state: sessionState(response.state),
    reservedBytes: number64(response.reservedBytes),
    exact: response.exact,
    fingerprint: response.fingerprint,
    model: response.model,
    worker: response.worker,
    epoch: number64(response.epoch),
    boundaries: response.boundaries.map(number64),
    inexactResume: response.inexactResume,
    numDraftedTokens: number64(response.draftedTokenCount),
    numAcceptedTokens: number64(response.acceptedTokenCount),
  };
}

export function listedSession(session: wire.Session): ListedSession {
  return {
    id: session.sessionId,
    label: session.clientLabel,
    model: session.model,
    state: sessionState(session.state),
    historyLength: number64(session.historyLength),
    kvLiveBytes: number64(session.kvLiveBytes),
    reservedBytes: number64(session.reservedBytes),
    idleSeconds: session.idleSeconds,
  };
}

export function parkResult(response: wire.ParkSessionResponse): ParkResult {
  return { historyLength: number64(response.historyLength), freedBytes: number64(response.freedBytes) };
}

function placeKind(value: wire.PlaceKind | undefined): PlaceKind {
  return (Object.keys(PLACE_KINDS) as PlaceKind[]).find((kind) => PLACE_KINDS[kind] === value) ?? "unspecified";
}

/** null where none was found. */
export function foundSession(response: wire.FindSessionResponse): FoundSession | null {
  if (response.sessionId === "") {
    return null;
  }
  return {
    id: response.sessionId,
    kind: placeKind(response.place?.kind),
    place: number64(response.place?.historyLength ?? 0n),
    tagIndex: response.tagIndex,
    isIdleEnd: response.isIdleEnd,
    isLast: response.isLast,
    historyLength: number64(response.historyLength),
  };
}

export function servedModel(model: wire.Model): ServedModel {
  return {
    name: model.name,
    numLaneTokens: number64(model.laneTokenCount),
    vocabSize: model.vocabSize,
    isDefault: model.isDefault,
    tokenizerDigest: model.tokenizerDigest,
    sink: model.sink,
    window: model.window,
    kvBytesPerToken: number64(model.kvBytesPerToken),
    features: [...model.features],
  };
}
