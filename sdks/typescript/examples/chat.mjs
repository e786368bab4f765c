// A chat in the terminal: node chat.mjs DIRECTORY [SYSTEM PROMPT]
//
// DIRECTORY is the model's, or its tokenizer's alone. The runtime is that of $KAKEYA_ADDRESS. Ctrl-C stops an answer, and
// leaves where there is none; so does Ctrl-D.

import process from "node:process";
import { createInterface } from "node:readline";

import { AbortError, Client } from "@kakeya/sdk";
import { ChatTokenizer } from "@kakeya/sdk/text";

const [directory, system = ""] = process.argv.slice(2);
if (!directory) {
  console.error("usage: node chat.mjs DIRECTORY [SYSTEM PROMPT]");
  process.exit(2);
}
const maxTokens = Number(process.env.MAX_TOKENS ?? 1024);
const tokenizer = await ChatTokenizer.load(directory);
const client = Client.fromEnvironment();
const session = await client.createSession({ eosTokenIds: tokenizer.eosTokenIds, label: "chat.mjs" });
const lines = createInterface({ input: process.stdin, output: process.stdout, prompt: "> " });

/** @type {AbortController | undefined} */
let answering;
const interrupt = () => (answering ? answering.abort() : lines.close());
lines.on("SIGINT", interrupt); // of a terminal's keys
process.on("SIGINT", interrupt);

/**
 * The answer's last token: what is sent next depends on whether the answer had an end.
 *
 * @type {number | undefined}
 */
let last;
let isFirst = true;

/** @param {string} text */
async function answer(text) {
  const prompt = isFirst ? tokenizer.firstPrompt(text, system) : tokenizer.nextPrompt(text, last);
  const detokenizer = tokenizer.detokenizer();
  answering = new AbortController();
  try {
    for await (last of session.turn(prompt, { maxTokens, signal: answering.signal })) {
      process.stdout.write(detokenizer.push(last));
    }
    process.stdout.write(detokenizer.flush());
  } catch (error) {
    if (!(error instanceof AbortError)) {
      throw error;
    }
    process.stdout.write(" [stopped]"); // what was generated stays in the session, which goes on
  } finally {
    answering = undefined;
    isFirst = false;
  }
}

let isOpen = true;
lines.once("close", () => (isOpen = false));
try {
  lines.prompt();
  for await (const line of lines) {
    if (line.trim()) {
      await answer(line);
      process.stdout.write("\n");
    }
    if (isOpen) {
      lines.prompt();
    }
  }
} finally {
  await session.close();
  await client.close();
}
