// The key with which this page asks; it stays in the tab.

import { byId } from "./dom.js";

const STORED = "kakeya.key";

export class Key {
  #secret = sessionStorage.getItem(STORED) ?? "";
  #asking = null;

  get headers() {
    return this.#secret ? { authorization: `Bearer ${this.#secret}` } : {};
  }

  // Asks the person; all who ask meanwhile wait for the same answer.
  ask() {
    this.#asking ??= this.#askOnce().finally(() => { this.#asking = null; });
    return this.#asking;
  }

  #askOnce() {
    const dialog = byId("key-dialog");
    byId("key-problem").hidden = !this.#secret;
    byId("key").value = "";
    dialog.showModal();
    return new Promise((resolve) => {
      dialog.addEventListener("cancel", (event) => event.preventDefault());
      byId("key-form").addEventListener("submit", () => {
        this.#secret = byId("key").value.trim();
        sessionStorage.setItem(STORED, this.#secret);
        resolve();
      }, { once: true });
    });
  }

  // A fetch with the key, asked for where the answer is 401.
  async fetch(path, options = {}) {
    for (;;) {
      const response = await fetch(path, { ...options, headers: { ...options.headers, ...this.headers } });
      if (response.status !== 401) return response;
      await this.ask();
    }
  }
}
