/** The runtimes of real processes that all files of a project share: tests/typescript/stack.py has them. */

import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { createInterface } from "node:readline";

import { expect, inject } from "vitest";

/** Where a runtime is. */
export interface Where {
  readonly addresses: readonly string[];
  readonly model: string;
  /** Of a secured one: files in PEM. */
  readonly files: { readonly ca: string; readonly cert: string; readonly key: string };
  /** Of a secured one. */
  readonly admin_key: string;
}

/** What tests/typescript/stack.py does for tests. */
export class Stack {
  #queue: Promise<unknown> = Promise.resolve();

  private constructor(
    readonly where: Where,
    private readonly ask: (asked: object) => Promise<unknown>,
  ) {}

  static async of(name: "plain" | "secured"): Promise<Stack> {
    const socket = await connected(inject("stacks"));
    socket.unref(); // the tests' end is its end
    const lines = createInterface({ input: socket })[Symbol.asyncIterator]();
    const ask = async (asked: object): Promise<unknown> => {
      socket.write(`${JSON.stringify({ of: name, ...asked })}\n`);
      const next = (await lines.next()) as IteratorResult<string, undefined>;
      if (next.value === undefined) {
        throw new Error("the runtimes of the tests have ended; see above");
      }
      return (JSON.parse(next.value) as { answer: unknown }).answer;
    };
    return new Stack((await ask({ do: "where" })) as Where, ask);
  }

  get address(): string {
    return this.where.addresses[0] ?? "";
  }

  /** Has it do something, one after the other. */
  do(what: string, given: object = {}): Promise<unknown> {
    const answer = this.#queue.then(() => this.ask({ do: what, ...given }));
    this.#queue = answer.catch(() => undefined);
    return answer;
  }
}

let plainOne: Promise<Stack> | undefined;
let securedOne: Promise<Stack> | undefined;

/** The one that most tests share. */
export function plainStack(): Promise<Stack> {
  return (plainOne ??= Stack.of("plain"));
}

/** Over mTLS, with keys. */
export function securedStack(): Promise<Stack> {
  return (securedOne ??= Stack.of("secured"));
}

/** Once there is something that listens. */
async function connected(path: string): Promise<Socket> {
  let socket: Socket | undefined;
  await eventually(async () => {
    const trying = connect(path);
    return await once(trying, "connect").then(
      () => ((socket = trying), true),
      () => false,
    );
  }, "the runtimes of the tests begin");
  return socket as unknown as Socket;
}

/** Fails unless it throws an error of this class, which it returns. */
export async function thrown<T>(kind: abstract new (...parts: never[]) => T, work: () => Promise<unknown>): Promise<T> {
  const error = await work().then(
    () => new Error("nothing was thrown"),
    (error: unknown) => error,
  );
  expect(error).toBeInstanceOf(kind);
  return error as T;
}

/** Polls until a condition holds; no machine takes longer, however busy. */
export async function eventually(condition: () => Promise<boolean> | boolean, what: string): Promise<void> {
  const deadline = Date.now() + 60_000;
  while (!(await condition())) {
    if (Date.now() > deadline) {
      throw new Error(`not within a minute: ${what}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export function range(length: number, start = 0): number[] {
  return Array.from({ length }, (_, index) => start + index);
}
