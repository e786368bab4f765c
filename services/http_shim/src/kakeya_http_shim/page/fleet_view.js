// The sums over all workers.

import { byId, KeyedList, make, setText } from "./dom.js";
import { bytes, count } from "./format.js";

const TILES = [
  ["Sessions", (sums) => count(sums.num_sessions ?? 0), () => ""],
  ["Lanes held", (sums) => count(sums.num_lanes_held ?? 0), (sums) => `of ${count(sums.num_lanes ?? 0)}`],
  ["KV live", (sums) => bytes(sums.kv_live_bytes ?? 0), () => ""],
  ["KV reserved", (sums) => bytes(sums.reserved_bytes ?? 0), (sums) => `of ${bytes(sums.slab_bytes ?? 0)}`],
  ["Waiting", (sums) => count(sums.num_waiting ?? 0), () => ""],
  ["Workers", (sums) => count(sums.num_workers ?? 0), () => ""],
];

export class FleetView {
  #list = new KeyedList(byId("fleet"), create, update);

  draw(board) {
    this.#list.show(TILES.map((tile) => [...tile, board.fleet]), ([name]) => name);
  }
}

function create([name]) {
  return make("div", { className: "tile" }, make("span", { textContent: name }), make("strong"), make("small"));
}

function update(tile, [, value, more, sums]) {
  setText(tile.children[1], value(sums));
  setText(tile.children[2], ` ${more(sums)}`);
}
