import { afterAll, beforeAll, expect, test } from "vitest";

import { Client, ConnectionFailed, type Session } from "../../src/index.js";
import { plainStack, range, thrown, type Stack } from "../support/stack.js";

const OPTIONS = { maxTokens: 200, temperature: 1, seed: 11, frequencyPenalty: 0.5, logprobs: 1 };
let stack: Stack;
let client: Client;

beforeAll(async () => {
  stack = await plainStack();
  client = new Client(stack.address);
});
afterAll(() => client.close());

/** Two turns; the second is disturbed after its 40th token. */
async function converse(
  session: Session,
  disturb: () => Promise<unknown> = () => Promise.resolve(),
): Promise<number[]> {
  const tokenIds = await session.turn(range(50), OPTIONS).all();
  const generation = session.turn(range(50, 50), OPTIONS);
  let number = 0;
  for await (const tokenId of generation) {
    tokenIds.push(tokenId);
    number += 1;
    if (number === 40) {
      await disturb();
    }
  }
  expect(generation.details.map((detail) => detail.tokenId)).toEqual(tokenIds.slice(200));
  expect(generation.done).toMatchObject({ numTokens: 200, historyLength: 500 });
  return tokenIds;
}

test("a stream whose worker is killed goes on with the same tokens", async () => {
  await using undisturbed = await client.createSession();
  const expected = await converse(undisturbed);
  expect(new Set(expected).size).toBeGreaterThan(50);
  await using session = await client.createSession();
  expect(await converse(session, () => stack.do("kill_worker", { session: session.id }))).toEqual(expected);
  expect((await session.info()).epoch).toBeGreaterThan(1);
  await stack.do("wait_for_workers");
});

test("a stream whose router is killed goes on at another one", async () => {
  await using undisturbed = await client.createSession();
  const expected = await converse(undisturbed);
  const mortal = (await stack.do("start_router")) as string;
  await using two = new Client(`${mortal},${stack.address}`);
  await using session = await two.createSession();
  expect(await converse(session, () => stack.do("kill_router", { address: mortal }))).toEqual(expected);
  expect(await session.info()).toMatchObject({ historyLength: 500 });
  // A client that does not repeat says what has happened.
  await using once = new Client(mortal, { maxAttempts: 1 });
  await thrown(ConnectionFailed, () => once.session(session.id).generate({ maxTokens: 1 }).all());
});
