/** What `watch` tells of a runtime: what there is, and what has changed. */

import * as wire from "../_generated/kakeya/admin/v1/admin_pb.js";
import { number64 } from "./number64.js";
import { plain, type Plain } from "./plain.js";
import { stateOfName, type SessionState } from "./sessions.js";
import { ranges, type TokenRange } from "./turns.js";

/** The latest answer of a session that came to its end. */
export type LastTurn = Plain<wire.LastTurn>;

/** Over all pools. */
export type FleetSums = Plain<wire.FleetSums>;

/** A worker and its slab. */
export interface WatchedWorker extends Omit<Plain<wire.WorkerStatus>, "lastHeartbeatAgeSeconds"> {
  /** Since its last heartbeat; 0: that is not late. */
  readonly lateSeconds: number;
}

/** A session as the router has it on record. */
export interface WatchedSession {
  readonly sessionId: string;
  /** Empty where no keys are asked for. */
  readonly tenant: string;
  /** Of the key that made it; empty where no keys are asked for. */
  readonly keyId: string;
  readonly label: string;
  readonly model: string;
  readonly pool: string;
  /** Of the worker that holds its lane; empty: it has none. */
  readonly workerId: string;
  /** Its number on that worker; null: none, or not known yet. */
  readonly lane: number | null;
  readonly state: SessionState;
  readonly busy: boolean;
  /** Unix time in seconds; while it is busy, of now. */
  readonly idleSince: number;
  readonly sink: number;
  readonly window: number;
  readonly historyLength: number;
  readonly kvLiveBytes: number;
  readonly reservedBytes: number;
  /** What is kept of the history, as indices into it, ascending. */
  readonly retained: readonly TokenRange[];
  readonly lastTurn: LastTurn | null;
}

/** Calls that wait for a lane. */
export interface PoolQueue {
  readonly pool: string;
  readonly numWaiting: number;
  /** How many of each tenant that the caller may see. */
  readonly tenants: Readonly<Record<string, number>>;
}

/** News of a runtime. */
export interface WatchEvent {
  /** What came before is void; what there is comes anew. */
  readonly begins: boolean;
  /** More of this moment follows at once. */
  readonly continues: boolean;
  /** Unix time in seconds, by the runtime's clock. */
  readonly at: number;
  /** null where it has not changed. */
  readonly fleet: FleetSums | null;
  /** Of them only who may see all is told. */
  readonly workers: readonly WatchedWorker[];
  /** Of workers. */
  readonly goneIncarnations: readonly string[];
  readonly sessions: readonly WatchedSession[];
  readonly goneSessionIds: readonly string[];
  readonly queues: readonly PoolQueue[];
  readonly gonePools: readonly string[];
}

const NOTHING: FleetSums = {
  numWorkers: 0,
  slabBytes: 0,
  reservedBytes: 0,
  kvLiveBytes: 0,
  numLanes: 0,
  numLanesHeld: 0,
  numSessions: 0,
  numWaiting: 0,
};

/** What the events so far come to. */
export class WatchedRuntime {
  fleet: FleetSums = NOTHING;
  /** By incarnation. */
  readonly workers = new Map<string, WatchedWorker>();
  /** By id. */
  readonly sessions = new Map<string, WatchedSession>();
  /** By pool. */
  readonly queues = new Map<string, PoolQueue>();
  /** Of the latest event: Unix time in seconds. */
  at = 0;

  /** Takes the news over. */
  apply(event: WatchEvent): void {
    if (event.begins) {
      this.fleet = NOTHING;
      [this.workers, this.sessions, this.queues].forEach((things) => {
        things.clear();
      });
    }
    this.at = event.at;
    this.fleet = event.fleet ?? this.fleet;
    update(this.workers, event.workers, (worker) => worker.incarnation, event.goneIncarnations);
    update(this.sessions, event.sessions, (session) => session.sessionId, event.goneSessionIds);
    update(this.queues, event.queues, (queue) => queue.pool, event.gonePools);
  }

  /** Who holds which lane: [numLanes]. A session whose lane has no number yet is shown on a free one. */
  lanes(worker: WatchedWorker): (WatchedSession | null)[] {
    const held = new Array<WatchedSession | null>(worker.numLanes).fill(null);
    const unplaced: WatchedSession[] = [];
    for (const session of this.sessions.values()) {
      if (session.pool !== worker.pool || session.workerId !== worker.workerId || session.reservedBytes === 0) {
        continue;
      }
      if (session.lane !== null && held[session.lane] === null) {
        held[session.lane] = session;
      } else {
        unplaced.push(session);
      }
    }
    return held.map((holder) => holder ?? unplaced.shift() ?? null);
  }
}

export function watchEvent(response: wire.WatchResponse): WatchEvent {
  return {
    begins: response.begins,
    continues: response.continues,
    at: response.at,
    fleet: response.fleet ? plain(wire.FleetSumsSchema, response.fleet) : null,
    workers: response.workers.map(watchedWorker),
    goneIncarnations: [...response.goneIncarnations],
    sessions: response.sessions.map((session) => watchedSession(session, response.at)),
    goneSessionIds: [...response.goneSessionIds],
    queues: response.queues.map(poolQueue),
    gonePools: [...response.gonePools],
  };
}

function watchedWorker(worker: wire.WorkerStatus): WatchedWorker {
  const { lastHeartbeatAgeSeconds, ...rest } = plain(wire.WorkerStatusSchema, worker);
  return { ...rest, lateSeconds: lastHeartbeatAgeSeconds };
}

function watchedSession(session: wire.Session, at: number): WatchedSession {
  return {
    sessionId: session.sessionId,
    tenant: session.tenant,
    keyId: session.keyId,
    label: session.clientLabel,
    model: session.model,
    pool: session.pool,
    workerId: session.workerId,
    lane: session.lane ?? null,
    state: stateOfName(session.state),
    busy: session.busy,
    idleSince: at - session.idleSeconds,
    sink: session.sink,
    window: session.window,
    historyLength: number64(session.historyLength),
    kvLiveBytes: number64(session.kvLiveBytes),
    reservedBytes: number64(session.reservedBytes),
    retained: ranges(session.retained),
    lastTurn: session.lastTurn ? plain(wire.LastTurnSchema, session.lastTurn) : null,
  };
}

function poolQueue(queue: wire.PoolQueue): PoolQueue {
  const tenants = queue.tenants.map(({ tenant, numWaiting }) => [tenant, number64(numWaiting)] as const);
  return { pool: queue.pool, numWaiting: number64(queue.numWaiting), tenants: Object.fromEntries(tenants) };
}

function update<T>(
  things: Map<string, T>,
  news: readonly T[],
  keyOf: (thing: T) => string,
  gone: readonly string[],
): void {
  for (const thing of news) {
    things.set(keyOf(thing), thing);
  }
  for (const key of gone) {
    things.delete(key);
  }
}
