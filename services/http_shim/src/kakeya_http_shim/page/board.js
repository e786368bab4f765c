// What runs, added up from the events of the feed.

export class Board {
  fleet = {};
  workers = new Map();
  sessions = new Map();
  queues = new Map();
  at = 0;

  apply(event) {
    if (event.begins) {
      this.fleet = {};
      for (const things of [this.workers, this.sessions, this.queues]) things.clear();
    }
    this.at = event.at;
    this.fleet = event.fleet ?? this.fleet;
    for (const worker of event.workers ?? []) this.workers.set(worker.incarnation, worker);
    for (const session of event.sessions ?? []) this.sessions.set(session.session_id, session);
    for (const queue of event.queues ?? []) this.queues.set(queue.pool, queue);
    for (const name of event.gone_workers ?? []) this.workers.delete(name);
    for (const name of event.gone_sessions ?? []) this.sessions.delete(name);
    for (const name of event.gone_queues ?? []) this.queues.delete(name);
  }

  // Who holds which lane of a worker. A session whose lane has no number yet is shown on a free one.
  lanes(worker) {
    const held = new Array(worker.num_lanes).fill(null);
    const unplaced = [];
    for (const session of this.sessions.values()) {
      if (session.worker_id !== worker.worker_id || session.pool !== worker.pool || !session.reserved_bytes) continue;
      if (session.lane !== null && session.lane < held.length && !held[session.lane]) held[session.lane] = session;
      else unplaced.push(session);
    }
    for (let lane = 0; unplaced.length && lane < held.length; lane += 1) held[lane] ??= unplaced.shift();
    return held;
  }
}
