// What the npm package `openai` gets of a server: node ask.mjs '{"model", "absent", "bias", "adminKey", "spentKey"}'
// OPENAI_BASE_URL and OPENAI_API_KEY name the server. Prints one JSON object, which test_openai_npm.py judges.
import OpenAI from "openai";

const given = JSON.parse(process.argv[2]);
const client = new OpenAI({ maxRetries: 0 });
const hello = { model: given.model, messages: [{ role: "user", content: "Hello" }] };
const cut = { ...hello, max_tokens: 24, logit_bias: given.bias, seed: 11 };

const chat = (fields = {}, from = client) => from.chat.completions.create({ ...cut, ...fields });

async function streamed(fields = {}) {
  const chunks = [];
  for await (const chunk of await chat({ stream: true, ...fields })) chunks.push(chunk);
  const choices = chunks.flatMap((chunk) => chunk.choices);
  return {
    numChunks: chunks.length,
    text: choices.map((choice) => choice.delta.content ?? "").join(""),
    finishReasons: choices.map((choice) => choice.finish_reason).filter(Boolean),
    usage: chunks.at(-1).usage ?? null,
  };
}

async function refused(ask) {
  try {
    await ask();
  } catch (error) {
    const { status, code, param, type, requestID } = error;
    const retryAfter = error.headers?.get("retry-after") ?? null;
    const kind = Object.keys(OpenAI).find((name) => OpenAI[name] === error.constructor);
    return { kind, status, code, param, type, retryAfter, isNamed: Boolean(requestID) };
  }
  return null;
}

async function responded() {
  const asked = { model: given.model, input: "Hello", max_output_tokens: 24, temperature: 0 };
  const first = await client.responses.create(asked);
  const stream = client.responses.stream(asked);
  const kinds = [];
  for await (const event of stream) kinds.push(event.type);
  const streamed = (await stream.finalResponse()).output_text;
  const second = await client.responses.create({ ...asked, input: "And?", previous_response_id: first.id });
  const found = await client.responses.retrieve(first.id);
  const items = [];
  for await (const item of client.responses.inputItems.list(second.id, { order: "asc" })) items.push(item);
  await client.responses.delete(first.id);
  const gone = await refused(() => client.responses.retrieve(first.id));
  const texts = { whole: first.output_text, streamed, found: found.output_text };
  return { texts, kinds, roles: items.map((item) => item.role), usage: second.usage, gone };
}

async function conversed() {
  const begun = await client.conversations.create({ items: [{ type: "message", role: "user", content: "Hello" }] });
  const conversation = begun.id;
  const asked = { model: given.model, max_output_tokens: 24, temperature: 0, conversation };
  const first = await client.responses.create({ ...asked, input: "One?" });
  const stream = client.responses.stream({ ...asked, input: "Two?" });
  const second = await stream.finalResponse();
  await client.conversations.items.create(conversation, {
    items: [{ type: "message", role: "user", content: "Thanks." }],
  });
  const items = [];
  for await (const item of client.conversations.items.list(conversation, { order: "asc", limit: 2 })) items.push(item);
  const found = await client.conversations.items.retrieve(items[0].id, { conversation_id: conversation });
  await client.conversations.items.delete(items[0].id, { conversation_id: conversation });
  const noted = await client.conversations.update(conversation, { metadata: { topic: "demo" } });
  const looked = await client.conversations.retrieve(conversation);
  const { deleted } = await client.conversations.delete(conversation);
  const gone = await refused(() => client.responses.create({ ...asked, input: "And?" }));
  const said = items.map((item) => item.content[0].text);
  const answers = [first.output_text, second.output_text];
  const metadata = [noted.metadata, looked.metadata];
  return { said, answers, isFound: found.id === items[0].id, metadata, deleted, gone };
}

const text = (answer) => answer.choices[0].message.content;
const whole = await chat();
const stop = text(whole).slice(6, 9);
const { response } = await client.chat.completions.create({ ...cut, max_tokens: 1 }).withResponse();
const models = [];
for await (const model of client.models.list()) models.push(model.id);

const results = {
  chat: { text: text(whole), finishReason: whole.choices[0].finish_reason, usage: whole.usage, model: whole.model },
  again: text(await chat()),
  other: text(await chat({ seed: 12 })),
  stream: await streamed({ stream_options: { include_usage: true } }),
  stop: { text: stop, whole: text(await chat({ stop })), stream: await streamed({ stop: [stop] }) },
  several: (await chat({ n: 2 })).choices.map((choice) => choice.message.content),
  likelihoods: (await chat({ logprobs: true, top_logprobs: 2 })).choices[0].logprobs.content.map((token) => ({
    token: token.token,
    logprob: token.logprob,
    numLikeliest: token.top_logprobs.length,
  })),
  completion: (await client.completions.create({ model: given.model, prompt: "Hello", max_tokens: 4 })).usage,
  responses: await responded(),
  conversation: await conversed(),
  models,
  model: (await client.models.retrieve(given.model)).id,
  requestId: response.headers.get("x-request-id"),
  errors: {
    badRequest: await refused(() => chat({ temperature: 3 })),
    tools: await refused(() => chat({ tools: [{ type: "custom", custom: { name: "f" } }], stream: true })),
    overflow: await refused(() =>
      chat({ messages: [{ role: "user", content: "Hello. ".repeat(40) }], kakeya: { on_overflow: "refuse" } }),
    ),
    authentication: await refused(() => chat({}, client.withOptions({ apiKey: "sk-nonsense" }))),
    permission: await refused(() => chat({}, client.withOptions({ apiKey: given.adminKey }))),
    rateLimit: await refused(() => chat({}, client.withOptions({ apiKey: given.spentKey }))),
    notFound: await refused(() => client.models.retrieve("gpt-17")),
    noWorker: await refused(() => chat({ model: given.absent })),
  },
};
console.log(JSON.stringify(results));
