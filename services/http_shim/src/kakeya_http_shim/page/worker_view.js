// Workers, each with its slab filled lane by lane, and the queue.

import { byId, KeyedList, make, setText } from "./dom.js";
import { bytes, count, seconds } from "./format.js";

export class WorkerView {
  #list = new KeyedList(byId("worker-list"), create, update);

  draw(board, chosen) {
    const workers = [...board.workers.values()].sort((a, b) => order(a).localeCompare(order(b)));
    this.#list.show(workers.map((worker) => ({ worker, lanes: board.lanes(worker), chosen })), (each) => each.worker.incarnation);
    const waiting = [...board.queues.values()].filter((queue) => queue.num_waiting);
    setText(byId("queue"), waiting.length ? `In the queue: ${waiting.map(said).join(", ")}` : "Nobody waits");
  }
}

const order = (worker) => `${worker.pool} ${worker.worker_id}`;

function said(queue) {
  const tenants = Object.entries(queue.tenants).filter(([tenant]) => tenant);
  const whose = tenants.map(([tenant, number]) => `${tenant} ${count(number)}`).join(", ");
  return `${queue.pool} ${count(queue.num_waiting)}${whose ? ` (${whose})` : ""}`;
}

function create() {
  const slab = make("ul", { className: "slab" });
  const worker = make("article", { className: "worker" },
    make("div", { className: "worker-head" }, make("h3"), make("span", { className: "badge" }), make("span", { className: "quiet" })),
    slab);
  worker.lanes = new KeyedList(slab, createLane, updateLane);
  return worker;
}

function update(element, { worker, lanes, chosen }) {
  const [name, badge, facts] = element.firstChild.children;
  setText(name, worker.worker_id);
  const state = worker.draining ? "draining" : worker.late_seconds ? `silent for ${seconds(worker.late_seconds)}` : "";
  setText(badge, state);
  badge.hidden = !state;
  setText(facts, `${worker.model}, ${worker.weights}${worker.exact ? ", exact" : ""} · ${count(worker.num_sessions)} of ${count(worker.num_lanes)} lanes · ${bytes(worker.kv_live_bytes)} live of ${bytes(worker.slab_bytes)}`);
  const most = (worker.sink + worker.window) * worker.kv_bytes_per_token;
  element.lanes.show(lanes.map((session, lane) => ({ session, lane, most, chosen })), (each) => each.lane);
}

const createLane = () => make("li", { className: "lane" }, make("b"));

function updateLane(element, { session, lane, most, chosen }) {
  element.className = ["lane", session && "held", session?.busy && "busy", session && session.session_id === chosen && "mine"].filter(Boolean).join(" ");
  const share = session && most ? Math.min(1, session.kv_live_bytes / most) : 0;
  element.firstChild.style.height = `${Math.round(100 * share)}%`;
  const whose = session ? `${session.label || session.session_id}: ${bytes(session.kv_live_bytes)} live` : "free";
  const title = `Lane ${lane}, ${whose}`;
  if (element.title !== title) element.title = title;
}
