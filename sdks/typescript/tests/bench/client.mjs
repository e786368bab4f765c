/**
 * What `make bench-sdk-typescript` has the SDK do: lines of JSON on the standard input, each answered by a line.
 *
 *   node client.mjs HOST:PORT
 *
 * tests/benchmarks/calls/sdk_client.py does the same by the Python SDK.
 */

import { performance } from "node:perf_hooks";
import process from "node:process";
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";

import { Client } from "../../dist/index.mjs";

const ENDLESS = { maxTokens: 65_536, ignoreEos: true };
const client = new Client(process.argv[2]);

/** A stream to its end. */
async function stream(session, { num_tokens }) {
  const tokenIds = [];
  for await (const tokenId of session.turn([1, 2, 3], { maxTokens: num_tokens, ignoreEos: true })) {
    tokenIds.push(tokenId);
  }
  return { num_tokens: tokenIds.length };
}

/** Leaves a loop after so many tokens; how long the history is after each of these pauses. */
async function leave(session, { after, pauses_seconds }) {
  await session.append([1, 2, 3]);
  const tokenIds = [];
  let left_at;
  for await (const tokenId of session.generate(ENDLESS)) {
    tokenIds.push(tokenId);
    if (tokenIds.length === after) {
      left_at = (performance.timeOrigin + performance.now()) / 1000;
      break;
    }
  }
  const history_lengths = [];
  for (const seconds of pauses_seconds) {
    await setTimeout(seconds * 1000);
    history_lengths.push((await session.info()).historyLength);
  }
  return { session_id: session.id, left_at, num_seen: 3 + tokenIds.length, history_lengths };
}

const doing = { stream, leave };
for await (const line of createInterface({ input: process.stdin })) {
  const { do: what, ...given } = JSON.parse(line);
  const session = await client.createSession();
  const answer = await doing[what](session, given);
  await session.close();
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await client.close();
