// A web server that streams answers to a page: node server.mjs DIRECTORY [PORT]
//
// DIRECTORY is the model's, or its tokenizer's alone. The runtime is that of $KAKEYA_ADDRESS. Each page has a session of
// its own. Who leaves the page, or presses Stop, stops the answer. It listens on this machine alone, and knows no users.

import { once } from "node:events";
import { createServer } from "node:http";
import process from "node:process";
import { text as readText } from "node:stream/consumers";

import { AbortError, Client, KakeyaError } from "@kakeya/sdk";
import { ChatTokenizer } from "@kakeya/sdk/text";

const [directory, port = "8080"] = process.argv.slice(2);
if (!directory) {
  console.error("usage: node server.mjs DIRECTORY [PORT]");
  process.exit(2);
}
const MAX_TOKENS = Number(process.env.MAX_TOKENS ?? 1024);
/** Of pages that are served at once; the one that was used least lately is closed for a further one. */
const MAX_SESSIONS = 100;
const tokenizer = await ChatTokenizer.load(directory);
const client = Client.fromEnvironment();

/** @typedef {{ session: import("@kakeya/sdk").Session, isFirst: boolean, isBusy: boolean, last?: number }} Conversation */
/** @type {Map<string, Conversation>} */
const conversations = new Map();

/** @param {string} id - that the page made up */
async function conversationOf(id) {
  const found = conversations.get(id) ?? {
    session: await client.createSession({ eosTokenIds: tokenizer.eosTokenIds, label: "server.mjs" }),
    isFirst: true,
    isBusy: false,
  };
  conversations.delete(id);
  conversations.set(id, found);
  const [oldest, { session }] = conversations.entries().next().value ?? ["", found];
  if (conversations.size > MAX_SESSIONS) {
    conversations.delete(oldest);
    await session.close();
  }
  return found;
}

/**
 * @param {Conversation} conversation
 * @param {string} text
 * @param {import("node:http").ServerResponse} response
 */
async function answer(conversation, text, response) {
  const left = new AbortController();
  response.on("close", () => left.abort()); // after its end, too, when nothing is left to abort
  response.writeHead(200, { "Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff" });
  const { session, isFirst, last } = conversation;
  const prompt = isFirst ? tokenizer.firstPrompt(text) : tokenizer.nextPrompt(text, last);
  const detokenizer = tokenizer.detokenizer();
  conversation.isFirst = false;
  for await (const tokenId of session.turn(prompt, { maxTokens: MAX_TOKENS, signal: left.signal })) {
    conversation.last = tokenId;
    if (!response.write(detokenizer.push(tokenId))) {
      await once(response, "drain", { signal: left.signal }); // a slow page slows its own answer down, and nothing else
    }
  }
  response.end(detokenizer.flush());
}

const PAGE = `<!doctype html><meta charset="utf-8"><title>Kakeya</title>
<pre id="said"></pre>
<form><input name="text" autofocus autocomplete="off"> <button>Say</button> <button type="button" id="stop">Stop</button></form>
<script type="module">
  const id = crypto.randomUUID();
  const said = document.querySelector("#said");
  let stopping = new AbortController();
  document.querySelector("#stop").onclick = () => stopping.abort();
  document.querySelector("form").onsubmit = async (event) => {
    event.preventDefault();
    const body = event.target.text.value;
    event.target.reset();
    said.append("> " + body + "\\n");
    stopping = new AbortController();
    try {
      const response = await fetch("/answer", { method: "POST", body, headers: { conversation: id }, signal: stopping.signal });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let part; !(part = await reader.read()).done; ) said.append(part.value);
    } catch (error) {
      said.append(" [" + error.message + "]");
    }
    said.append("\\n");
  };
</script>`;

const server = createServer(async (request, response) => {
  const { conversation: id } = request.headers;
  if (request.method === "GET" && request.url === "/") {
    response.writeHead(200, { "Content-Type": "text/html; charset=utf-8" }).end(PAGE);
    return;
  }
  // A header of one's own keeps pages of other origins from asking.
  if (request.method !== "POST" || request.url !== "/answer" || typeof id !== "string") {
    response.writeHead(404).end();
    return;
  }
  /** @type {Conversation | undefined} */
  let conversation;
  try {
    const text = await readText(request);
    const found = await conversationOf(id);
    if (found.isBusy) {
      response.writeHead(409).end("one answer at a time");
      return;
    }
    conversation = found;
    conversation.isBusy = true;
    await answer(conversation, text, response);
  } catch (error) {
    if (error instanceof AbortError || response.destroyed) {
      return; // nobody reads
    }
    console.error(error);
    if (response.headersSent) {
      response.destroy(); // an answer that is cut off must not look whole
    } else {
      response.writeHead(error instanceof KakeyaError ? 503 : 500).end("no answer now");
    }
  } finally {
    if (conversation) {
      conversation.isBusy = false;
    }
  }
});

async function stop() {
  server.close();
  server.closeAllConnections();
  await Promise.allSettled([...conversations.values()].map(({ session }) => session.close()));
  await client.close();
}
process.once("SIGINT", stop).once("SIGTERM", stop);
server.listen(Number(port), "127.0.0.1", () => {
  const address = server.address();
  console.log(`http://127.0.0.1:${typeof address === "object" ? address?.port : port}`);
});
