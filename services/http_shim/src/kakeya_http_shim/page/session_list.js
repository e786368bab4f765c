// All sessions that this key may see, the busy ones and those used last first.

import { byId, KeyedList, make, setText } from "./dom.js";
import { bytes, count, seconds } from "./format.js";

const MAX_SHOWN = 100;

export class SessionList {
  #list;

  constructor(onChoose) {
    this.#list = new KeyedList(byId("session-list"), (row) => create(row, onChoose), update);
  }

  draw(board, chosen) {
    const all = [...board.sessions.values()].sort((a, b) => b.busy - a.busy || b.idle_since - a.idle_since);
    const shown = all.slice(0, MAX_SHOWN);
    this.#list.show(shown.map((session) => ({ session, chosen, at: board.at })), (row) => row.session.session_id);
    const more = all.length - shown.length;
    setText(byId("sessions-count"), all.length ? `${count(all.length)}${more ? `, ${count(more)} not shown` : ""}` : "none yet");
  }
}

const shortId = (id) => id.split(".").at(-1).slice(0, 8);

function create({ session }, onChoose) {
  const button = make("button", { type: "button" },
    make("span", { className: "dot" }), make("span", { className: "title" }),
    make("span", { className: "number" }), make("span", { className: "number live" }), make("span", { className: "number" }));
  button.addEventListener("click", () => onChoose(session.session_id));
  return make("li", {}, button);
}

function update(element, { session, chosen, at }) {
  const button = element.firstChild;
  button.setAttribute("aria-pressed", String(session.session_id === chosen));
  const [dot, title, history, live, idle] = button.children;
  const state = session.busy ? "busy" : session.state;
  if (dot.className !== `dot ${state}`) dot.className = `dot ${state}`;
  dot.title = state;
  setText(title, [shortId(session.session_id), session.label, session.tenant].filter(Boolean).join(" · "));
  setText(history, `${count(session.history_length)} tokens`);
  setText(live, `${bytes(session.kv_live_bytes)} live`);
  setText(idle, session.busy || session.state !== "open" ? state : seconds(Math.max(0, at - session.idle_since)));
}
