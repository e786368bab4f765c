/** A runtime of real processes, which ends with the process that asked for it. */

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { expect } from "vitest";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const PYTHON = process.env.KAKEYA_TEST_PYTHON ?? `${ROOT}.venv/bin/python`;

/** Where a runtime is. */
export interface Said {
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
    readonly said: Said,
    private readonly ask: (asked: object) => Promise<unknown>,
  ) {}

  static async start(...flags: string[]): Promise<Stack> {
    const helper = spawn(PYTHON, ["-m", "tests.typescript.stack", ...flags], {
      cwd: ROOT,
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...process.env, PYTHONDONTWRITEBYTECODE: "" },
    });
    const lines = createInterface({ input: helper.stdout })[Symbol.asyncIterator]();
    const line = async (): Promise<Record<string, unknown>> => {
      const next = (await lines.next()) as IteratorResult<string, undefined>;
      if (next.value === undefined) {
        throw new Error("the runtime of the tests has ended; see above");
      }
      return JSON.parse(next.value) as Record<string, unknown>;
    };
    const said = (await line()) as unknown as Said;
    // The tests' end is its end: it sees its input close.
    helper.unref();
    for (const pipe of [helper.stdin, helper.stdout] as unknown as { unref?: () => void }[]) {
      pipe.unref?.();
    }
    return new Stack(said, async (asked) => {
      helper.stdin.write(`${JSON.stringify(asked)}\n`);
      return (await line()).answer;
    });
  }

  get address(): string {
    return this.said.addresses[0] ?? "";
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
  return (plainOne ??= Stack.start());
}

/** Over mTLS, with keys. */
export function securedStack(): Promise<Stack> {
  return (securedOne ??= Stack.start("--secured"));
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
