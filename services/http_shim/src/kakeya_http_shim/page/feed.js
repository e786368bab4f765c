// The stream of what runs. It connects again for as long as the page is there.

import { serverSentEvents } from "./events.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

export class Feed {
  #key;
  #onEvent;
  #onStatus;

  // onStatus is told "live" or "away".
  constructor(key, onEvent, onStatus) {
    this.#key = key;
    this.#onEvent = onEvent;
    this.#onStatus = onStatus;
  }

  async run() {
    let wait = FIRST_WAIT_MS;
    for (;;) {
      try {
        const response = await this.#key.fetch("/ui/events");
        if (!response.ok) throw new Error(`status ${response.status}`);
        for await (const event of serverSentEvents(response)) {
          if (event.kind === "error") throw new Error(JSON.parse(event.data).error.message);
          wait = FIRST_WAIT_MS;
          this.#onStatus("live", "");
          this.#onEvent(JSON.parse(event.data));
        }
        this.#onStatus("away", "the server has ended the stream");
      } catch (error) {
        this.#onStatus("away", error.message);
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(2 * wait, LONGEST_WAIT_MS);
    }
  }
}
