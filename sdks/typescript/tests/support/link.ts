/** A connection to a runtime whose answers can be held back, while requests go on through. */

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

export class Link implements AsyncDisposable {
  /** Bytes of requests that have gone through. */
  numSent = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #answers = new Set<Socket>();
  #isHeld = false;

  private constructor(router: string) {
    const [host, port] = router.split(":");
    this.#server = createServer((client) => {
      const runtime = connect(Number(port), host);
      client.on("data", (bytes) => {
        this.numSent += bytes.length;
        runtime.write(bytes);
      });
      runtime.on("data", (bytes) => client.write(bytes));
      if (this.#isHeld) {
        runtime.pause();
      }
      this.#answers.add(runtime);
      for (const [one, other] of [
        [client, runtime],
        [runtime, client],
      ] as const) {
        this.#sockets.add(one);
        one.on("close", () => other.destroy());
        one.on("error", () => other.destroy());
      }
    });
  }

  static async to(router: string): Promise<Link> {
    const link = new Link(router);
    link.#server.listen(0, "127.0.0.1");
    await once(link.#server, "listening");
    return link;
  }

  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** No answer comes through any more. */
  hold(): void {
    this.#isHeld = true;
    this.#answers.forEach((runtime) => runtime.pause());
  }

  release(): void {
    this.#isHeld = false;
    this.#answers.forEach((runtime) => runtime.resume());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, "close");
    this.#server.close();
    this.#sockets.forEach((socket) => socket.destroy());
    await closed;
  }
}
