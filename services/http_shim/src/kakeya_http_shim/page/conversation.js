// A conversation as a tree: who asks once more, or says something else, makes a branch beside what is there.

const STORED = "kakeya.conversation";

export class Conversation {
  system = "";
  model = "";
  running = null; // { answer: id of the kept answer, node: id of the message that it becomes }
  #nodes = new Map(); // id -> { id, parent, role, text, note, children, chosen }
  #next = 1;

  constructor() {
    this.clear();
  }

  clear() {
    this.#nodes = new Map([[0, { id: 0, parent: null, role: "root", text: "", note: "", children: [], chosen: null }]]);
    this.#next = 1;
    this.running = null;
  }

  node(id) {
    return this.#nodes.get(id);
  }

  // Adds a message behind another one, beside those that are there, and goes on with it.
  add(parent, role, text = "") {
    const node = { id: this.#next, parent, role, text, note: "", children: [], chosen: null };
    this.#next += 1;
    this.#nodes.set(node.id, node);
    const above = this.node(parent);
    above.children.push(node.id);
    above.chosen = node.id;
    return node;
  }

  // The messages from the first to the end of the chosen branch.
  path() {
    const found = [];
    for (let id = this.node(0).chosen; id !== null; id = this.node(id).chosen) found.push(this.node(id));
    return found;
  }

  get end() {
    return this.path().at(-1) ?? this.node(0);
  }

  // The number of a message among those beside it, and how many these are.
  place(node) {
    const beside = this.node(node.parent).children;
    return [beside.indexOf(node.id) + 1, beside.length];
  }

  // Goes on with the branch that lies so many places beside this message.
  turn(node, step) {
    const above = this.node(node.parent);
    const beside = above.children;
    above.chosen = beside[(beside.indexOf(node.id) + step + beside.length) % beside.length];
  }

  // What is sent for an answer that comes behind a message.
  messages(until) {
    const said = [];
    for (let node = this.node(until); node.role !== "root"; node = this.node(node.parent)) said.unshift({ role: node.role, content: node.text });
    return this.system ? [{ role: "system", content: this.system }, ...said] : said;
  }

  save() {
    try {
      sessionStorage.setItem(STORED, JSON.stringify({ system: this.system, model: this.model, running: this.running, next: this.#next, nodes: [...this.#nodes.values()] }));
    } catch {
      sessionStorage.removeItem(STORED); // it is full: the conversation goes on, and is not there after a reload
    }
  }

  load() {
    const text = sessionStorage.getItem(STORED);
    if (!text) return;
    const stored = JSON.parse(text);
    this.system = stored.system;
    this.model = stored.model;
    this.running = stored.running;
    this.#next = stored.next;
    this.#nodes = new Map(stored.nodes.map((node) => [node.id, node]));
  }
}
