// The chat box: it asks, streams, stops, asks once more, branches, and goes on after a reload.

import { Answer, pieces, sessionOf } from "./answer.js";
import { ChatView } from "./chat_view.js";
import { Conversation } from "./conversation.js";
import { byId, make } from "./dom.js";
import { count, seconds } from "./format.js";

export class Chat {
  #key;
  #onSession;
  #conversation = new Conversation();
  #view = new ChatView(this.#conversation, {
    regenerate: (node) => this.#answer(node.parent),
    edit: (node) => this.#edit(node),
    turn: (node, step) => this.#turn(node, step),
  });
  #editing = null;
  #isStopped = false;

  // onSession is told the id of the session that an answer comes from.
  constructor(key, onSession) {
    this.#key = key;
    this.#onSession = onSession;
    byId("ask").addEventListener("submit", (event) => { event.preventDefault(); this.#say(); });
    byId("text").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.#say(); }
    });
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") this.#stop(); });
    byId("stop").addEventListener("click", () => this.#stop());
    byId("new-chat").addEventListener("click", () => this.#begin());
    byId("system").addEventListener("change", (event) => { this.#conversation.system = event.target.value.trim(); this.#conversation.save(); });
    byId("model").addEventListener("change", (event) => { this.#conversation.model = event.target.value; this.#conversation.save(); });
  }

  async start() {
    this.#conversation.load();
    byId("system").value = this.#conversation.system;
    byId("system-box").open = Boolean(this.#conversation.system);
    this.#view.redraw();
    const listed = await (await this.#key.fetch("/v1/models")).json();
    byId("model").replaceChildren(...(listed.data ?? []).map((model) => make("option", { value: model.id, textContent: model.id })));
    if (this.#conversation.model) byId("model").value = this.#conversation.model;
    await this.#goOn();
  }

  #say() {
    const text = byId("text").value.trim();
    if (!text || this.#conversation.running) return;
    byId("text").value = "";
    const parent = this.#editing ?? this.#conversation.end.id;
    this.#editing = null;
    this.#answer(this.#conversation.add(parent, "user", text).id);
  }

  // The message is said in another way: its branch stays.
  #edit(node) {
    this.#editing = node.parent;
    byId("text").value = node.text;
    byId("text").focus();
  }

  #turn(node, step) {
    this.#conversation.turn(node, step);
    this.#conversation.save();
    this.#view.redraw();
  }

  #begin() {
    this.#stop();
    this.#editing = null;
    this.#conversation.clear();
    this.#conversation.save();
    this.#onSession(null);
    this.#view.redraw();
    byId("text").focus();
  }

  #stop() {
    const { running } = this.#conversation;
    if (!running || this.#isStopped) return;
    this.#isStopped = true;
    new Answer(this.#key, running.answer).leave();
  }

  // Asks for an answer behind a message.
  async #answer(parent) {
    if (this.#conversation.running) return;
    const body = {
      model: byId("model").value || undefined,
      messages: this.#conversation.messages(parent),
      stream: true,
      stream_options: { include_usage: true },
    };
    const node = this.#conversation.add(parent, "assistant");
    const answer = new Answer(this.#key, crypto.randomUUID?.() ?? randomId());
    this.#conversation.running = { answer: answer.id, node: node.id };
    this.#conversation.save();
    await this.#read(node, () => answer.ask(body));
  }

  // Goes on with the answer in whose middle the page was loaded anew.
  async #goOn() {
    const { running } = this.#conversation;
    if (!running) return;
    const node = this.#conversation.node(running.node);
    await this.#read(node, () => new Answer(this.#key, running.answer).readAgain());
  }

  async #read(node, ask) {
    const began = performance.now();
    const { running } = this.#conversation;
    let firstSeconds = null;
    let session = {};
    this.#isStopped = false;
    node.text = "";
    this.#view.redraw();
    try {
      const response = await ask();
      session = sessionOf(response);
      if (session.id) this.#onSession(session.id);
      for await (const piece of pieces(response)) {
        if (this.#conversation.running !== running) return; // another conversation has begun
        if (!piece.text) continue;
        firstSeconds ??= (performance.now() - began) / 1000;
        node.text += piece.text;
        this.#view.redraw();
      }
      node.note = this.#isStopped ? "stopped" : noteOf(session, firstSeconds);
    } catch (error) {
      node.note = this.#isStopped ? "stopped" : `This answer has failed: ${error.message}`;
    }
    if (this.#conversation.running === running) this.#conversation.running = null;
    this.#conversation.save();
    this.#view.redraw();
  }
}

function noteOf(session, firstSeconds) {
  const parts = session.state ? [`session ${session.state}`, `${count(Number(session.appended))} new, ${count(Number(session.reused))} reused`] : [];
  if (firstSeconds !== null) parts.push(`first token ${seconds(firstSeconds)}`);
  return parts.join(" · ");
}

// For pages that are not served over TLS, which have no randomUUID.
function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (each) => each.toString(16).padStart(2, "0")).join("");
}
