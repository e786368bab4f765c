import { afterAll, beforeAll, expect, test } from "vitest";

import { Client, KakeyaError, type AppendOptions, type Generation, type Session } from "../../src/index.js";
import { plainStack, range, type Stack } from "../support/stack.js";

let stack: Stack;
let client: Client;

beforeAll(async () => {
  stack = await plainStack();
  client = new Client(stack.address);
});
afterAll(() => client.close());

type Step = Record<string, unknown> & { readonly do: string };

const SCRIPT: Step[] = [
  { do: "generate", max_tokens: 1 },
  { do: "append", token_ids: range(20), logprobs: 1 },
  { do: "turn", token_ids: [5, 6, 7], max_tokens: 10, temperature: 1, seed: 5, logprobs: 2 },
  { do: "turn", token_ids: range(90, 100), max_tokens: 30, top_k: 20, temperature: 0.8, seed: 6, min_p: 0.01 },
  { do: "append", token_ids: [5000] },
  { do: "turn", token_ids: [1], max_tokens: 0 },
  { do: "rewind", history_length: 33 },
  { do: "rewind", history_length: 40 },
  { do: "generate", max_tokens: 8, stop_token_sequences: [[1], [2]], seed: 7, logprobs: 0 },
  { do: "close" },
];

const camel = (name: string): string => name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());

/** Names as Python has them, without what differs each time. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(plain);
  }
  if (typeof value !== "object" || value === null) {
    return value;
  }
  const entries = Object.entries(JSON.parse(JSON.stringify(value)) as object)
    .filter(([name]) => !["prefillSeconds", "totalSeconds", "opId"].includes(name))
    .map(([name, each]) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), plain(each)]);
  return Object.fromEntries(entries);
}

async function heard(generation: Generation): Promise<unknown> {
  const tokenIds = await generation.all();
  const { appended, truncated, details, done } = generation;
  return plain({ tokenIds, appended, truncated, details, done });
}

async function step(session: Session, { do: what, token_ids, history_length, ...given }: Step): Promise<unknown> {
  const tokenIds = token_ids as number[];
  const options = Object.fromEntries(Object.entries(given).map(([name, value]) => [camel(name), value])) as {
    maxTokens: number;
  };
  try {
    switch (what) {
      case "append":
        return plain(await session.append(tokenIds, options as AppendOptions));
      case "rewind":
        return plain(await session.rewind(history_length as number));
      case "close":
        return { final: await session.close() };
      case "turn":
        return await heard(session.turn(tokenIds, options));
      default:
        return await heard(session.generate(options));
    }
  } catch (error) {
    if (error instanceof KakeyaError) {
      return { error: error.name, reason: error.reason, status: error.status };
    }
    throw error;
  }
}

test("one conversation through both SDKs has the same tokens, events and errors", async () => {
  const theirs = (await stack.do("converse", { script: SCRIPT })) as unknown[];
  const session = await client.createSession();
  const ours = [];
  for (const each of SCRIPT) {
    ours.push(await step(session, each));
  }
  expect(ours).toEqual(theirs);
  expect(ours.filter((each) => "error" in (each as object))).toHaveLength(4);
});
