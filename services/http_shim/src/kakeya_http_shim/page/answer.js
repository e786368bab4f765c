// One answer of the chat. The server keeps it for a while, so that a page that is loaded anew reads on.

import { serverSentEvents } from "./events.js";

export class Answer {
  #key;
  #path;

  constructor(key, id) {
    this.id = id;
    this.#key = key;
    this.#path = `/ui/answers/${id}`;
  }

  ask(body) {
    return this.#key.fetch(this.#path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  }

  readAgain() {
    return this.#key.fetch(this.#path);
  }

  leave() {
    return this.#key.fetch(this.#path, { method: "DELETE" });
  }
}

// What an answer says: {text} for each piece, then {usage}; raises an Error with what the server says is wrong.
export async function* pieces(response) {
  if (!response.ok) throw new Error((await response.json()).error.message);
  for await (const event of serverSentEvents(response)) {
    if (event.data === "[DONE]") continue; // the end of the response follows
    const said = JSON.parse(event.data);
    if (said.error) throw new Error(said.error.message);
    const delta = said.choices[0]?.delta;
    if (delta?.content) yield { text: delta.content };
    if (said.usage) yield { usage: said.usage };
  }
}

// What `Kakeya-Session` says: which session the answer came from, and what that cost.
export function sessionOf(response) {
  const header = response.headers.get("kakeya-session") ?? "";
  const [state, ...parts] = header.split(";").map((part) => part.trim());
  return { state, ...Object.fromEntries(parts.map((part) => part.split("="))) };
}
