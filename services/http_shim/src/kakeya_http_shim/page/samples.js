// How sessions were over time, in bounded memory: a long time is kept in coarser steps, not cut off.

const MAX_POINTS = 512;
const MAX_TURNS = 200;
const MAX_SESSIONS = 64;

class Series {
  times = [];
  history = [];
  memory = [];
  turns = []; // [number, prefill seconds, first token seconds]
  numTurns = 0;
  #step = 0;
  #lastTurnAt = 0;

  add(session, at) {
    const last = this.times.length - 1;
    // The newest point moves on until it is a step away from the one before.
    if (last > 0 && at - this.times[last - 1] < this.#step) this.#put(last, session, at);
    else this.#put(last + 1, session, at);
    if (this.times.length > MAX_POINTS) this.#thin();
    const turn = session.last_turn;
    if (turn && turn.ended_at !== this.#lastTurnAt) {
      this.#lastTurnAt = turn.ended_at;
      this.numTurns += 1;
      this.turns.push([this.numTurns, turn.prefill_seconds, turn.first_token_seconds]);
      if (this.turns.length > MAX_TURNS) this.turns.shift();
    }
  }

  #put(index, session, at) {
    this.times[index] = at;
    this.history[index] = session.history_length;
    this.memory[index] = session.kv_live_bytes;
  }

  #thin() {
    for (const name of ["times", "history", "memory"]) {
      const all = this[name];
      this[name] = all.filter((_, index) => index % 2 === 0 || index === all.length - 1);
    }
    this.#step = (this.times.at(-1) - this.times[0]) / (MAX_POINTS / 2);
  }
}

export class Samples {
  #series = new Map();

  // Takes in the sessions of an event; those that were seen longest ago are forgotten.
  take(event) {
    if (event.begins) for (const id of this.#series.keys()) if (!event.sessions?.some((each) => each.session_id === id)) this.#series.delete(id);
    for (const session of event.sessions ?? []) {
      const id = session.session_id;
      const series = this.#series.get(id) ?? new Series();
      this.#series.delete(id);
      this.#series.set(id, series);
      series.add(session, event.at);
    }
    for (const id of event.gone_sessions ?? []) this.#series.delete(id);
    for (const id of this.#series.keys()) {
      if (this.#series.size <= MAX_SESSIONS) break;
      this.#series.delete(id);
    }
  }

  of(id) {
    return this.#series.get(id);
  }
}
