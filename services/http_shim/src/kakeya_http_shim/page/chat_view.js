// The chat: a conversation on the screen. Only its end is, where it is long.

import { byId, drawn, KeyedList, make, setText } from "./dom.js";

const MAX_SHOWN = 60;

export class ChatView {
  #conversation;
  #list;
  #log = byId("log");
  redraw = drawn(() => this.#draw());

  // does: what the buttons of a message do: regenerate, edit, turn.
  constructor(conversation, does) {
    this.#conversation = conversation;
    this.#list = new KeyedList(this.#log, (row) => createMessage(row, does), updateMessage);
  }

  #draw() {
    const path = this.#conversation.path();
    const running = this.#conversation.running?.node;
    const isAtEnd = this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight < 60;
    const shown = path.slice(-MAX_SHOWN).map((node) => ({ node, place: this.#conversation.place(node), isRunning: node.id === running, isFree: running === undefined }));
    this.#list.show(shown, (row) => row.node.id);
    if (isAtEnd) this.#log.scrollTop = this.#log.scrollHeight;
    byId("send").disabled = running !== undefined;
    byId("stop").hidden = running === undefined;
  }
}

function createMessage({ node }, does) {
  const again = node.role === "user" ? button("Edit", () => does.edit(node)) : button("Regenerate", () => does.regenerate(node));
  const before = button("‹", () => does.turn(node, -1));
  const after = button("›", () => does.turn(node, 1));
  before.setAttribute("aria-label", "Branch before");
  after.setAttribute("aria-label", "Branch after");
  return make("article", { className: `message ${node.role}` },
    make("div", { className: "words" }),
    make("div", { className: "tools" }, before, make("span"), after, again, make("span", { className: "note" })));
}

function updateMessage(element, { node, place: [number, total], isRunning, isFree }) {
  element.classList.toggle("running", isRunning);
  setText(element.firstChild, node.text);
  const [before, which, after, again, note] = element.lastChild.children;
  for (const each of [before, which, after]) each.hidden = total < 2;
  before.disabled = after.disabled = again.disabled = !isFree;
  setText(which, `${number}/${total}`);
  setText(note, node.note);
}

function button(text, act) {
  const made = make("button", { type: "button", textContent: text });
  made.addEventListener("click", act);
  return made;
}
