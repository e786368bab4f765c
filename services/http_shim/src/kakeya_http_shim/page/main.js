// The page: one feed, the views of what runs, and the chat.

import { Board } from "./board.js";
import { Chat } from "./chat.js";
import { byId, drawn, setText } from "./dom.js";
import { Feed } from "./feed.js";
import { FleetView } from "./fleet_view.js";
import { Key } from "./key.js";
import { Samples } from "./samples.js";
import { SessionList } from "./session_list.js";
import { SessionView } from "./session_view.js";
import { WorkerView } from "./worker_view.js";

const key = new Key();
const board = new Board();
const samples = new Samples();
const fleet = new FleetView();
const workers = new WorkerView();
const session = new SessionView();
const list = new SessionList(choose);
let chosen = null;

const draw = drawn(() => {
  fleet.draw(board);
  workers.draw(board, chosen);
  list.draw(board, chosen);
  session.draw(board.sessions.get(chosen), samples.of(chosen));
});

function choose(id) {
  chosen = id;
  draw();
}

const feed = new Feed(
  key,
  (event) => {
    board.apply(event);
    samples.take(event);
    draw();
  },
  (status, why) => {
    const shown = byId("status");
    shown.className = `status ${status}`;
    setText(shown, status === "live" ? "live" : `away: ${why}`);
  },
);

draw();
feed.run();
new Chat(key, choose).start();
