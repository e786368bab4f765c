// One session: its history grows and its memory does not; what it still sees; what each turn cost.

import { axis, Chart } from "./chart.js";
import { byId, KeyedList, make, setText } from "./dom.js";
import { bytes, count, seconds } from "./format.js";

export class SessionView {
  #memory = new Chart(byId("memory-chart"), memoryOptions);
  #turns = new Chart(byId("turns-chart"), turnsOptions);
  #facts = new KeyedList(byId("session-facts"), createFact, updateFact);
  #ranges = new KeyedList(byId("retained"), () => make("i"), updateRange);

  draw(session, series) {
    byId("session-none").hidden = Boolean(session);
    byId("session-body").hidden = !session;
    setText(byId("session-name"), session?.session_id ?? "");
    if (!session || !series) return;
    this.#facts.show(facts(session), ([name]) => name);
    this.#drawRetained(session);
    this.#memory.show([series.times, series.history, series.memory]);
    setLegend("memory-caption", [["key-history", `history ${count(session.history_length)} tokens`], ["key-memory", `KV live ${bytes(session.kv_live_bytes)}`]]);
    const columns = [0, 1, 2].map((column) => series.turns.map((turn) => turn[column]));
    byId("turns-chart").hidden = !series.turns.length;
    if (series.turns.length) this.#turns.show(columns);
    const turn = session.last_turn;
    setLegend("turns-caption", turn ? [["key-first", `first token ${seconds(turn.first_token_seconds)}`], ["key-prefill", `prefill ${seconds(turn.prefill_seconds)}`]] : [["", "no answer yet"]]);
  }

  #drawRetained(session) {
    const length = session.history_length;
    this.#ranges.show(session.retained.map(([start, end]) => ({ start, end, length })), ({ start }) => (start ? "window" : "begin"));
    const seen = session.retained.reduce((sum, [start, end]) => sum + end - start, 0);
    const parts = session.retained.map(([start, end]) => `${count(start)} to ${count(end)}`).join(" and ");
    const text = !session.retained.length ? "it has no lane now"
      : seen === length ? "all of it" : `${count(seen)} of ${count(length)} tokens, ${count(length - seen)} forgotten`;
    setText(byId("retained-caption"), text);
    byId("retained").setAttribute("aria-label", parts ? `Of ${count(length)} tokens it sees ${parts}` : text);
  }
}

function facts(session) {
  return [
    ["State", session.busy ? "busy" : session.state],
    ["History", `${count(session.history_length)} tokens`],
    ["KV live", `${count(session.kv_live_bytes)} B`],
    ["Reserved", bytes(session.reserved_bytes)],
    ["Sinks and window", `${count(session.sink)} + ${count(session.window)}`],
    ["Worker", session.worker_id ? `${session.worker_id}${session.lane === null ? "" : `, lane ${session.lane}`}` : "none"],
  ];
}

const createFact = ([name]) => make("div", {}, make("dt", { textContent: name }), make("dd"));
const updateFact = (element, [, value]) => setText(element.lastChild, value);

function updateRange(element, { start, end, length }) {
  element.style.left = `${(100 * start) / length}%`;
  element.style.width = `${(100 * (end - start)) / length}%`;
}

function setLegend(id, entries) {
  const parent = byId(id);
  if (parent.children.length !== entries.length) parent.replaceChildren(...entries.map(() => make("span")));
  entries.forEach(([name, text], index) => {
    parent.children[index].className = name;
    setText(parent.children[index], text);
  });
}

function memoryOptions(color) {
  return {
    padding: [8, 4, 0, 0],
    cursor: { drag: { x: false, y: false } },
    scales: { history: { range: (_, __, most) => [0, Math.max(1, most * 1.05)] }, memory: { range: (_, __, most) => [0, Math.max(1, most * 1.6)] } },
    series: [
      {},
      { label: "history", scale: "history", stroke: color("--history"), width: 2, points: { show: false } },
      { label: "KV live", scale: "memory", stroke: color("--memory"), width: 2, points: { show: false } },
    ],
    axes: [
      axis(color, "x", (at) => new Date(at * 1000).toLocaleTimeString("en-GB"), { size: 28, space: 90 }),
      axis(color, "history", count),
      axis(color, "memory", bytes, { side: 1, grid: { show: false } }),
    ],
  };
}

function turnsOptions(color) {
  const bars = globalThis.uPlot.paths.bars({ size: [0.7, 18], align: 0 });
  const bar = (label, name, more) => ({ label, scale: "y", stroke: color(name), fill: color(name), width: 0, paths: bars, points: { show: false }, ...more });
  return {
    padding: [8, 4, 0, 0],
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false, range: (_, least, most) => [least - 0.7, Math.max(least + 8, most + 0.7)] }, y: { range: (_, __, most) => [0, Math.max(0.001, most * 1.1)] } },
    series: [{}, bar("prefill", "--prefill"), bar("first token", "--first", { fill: "transparent", width: 2, paths: globalThis.uPlot.paths.linear(), points: { show: true, size: 5, fill: color("--first") } })],
    axes: [axis(color, "x", (turn) => (Number.isInteger(turn) ? count(turn) : ""), { size: 28, space: 50 }), axis(color, "y", seconds)],
  };
}
