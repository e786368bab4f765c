// What the npm package `@anthropic-ai/sdk`, unmodified, gets of a server: node ask.mjs '{"url", "model", "name"}'
// Prints one JSON object, which test_anthropic.py judges. Its sister anthropic_python.py asks for the same.
import Anthropic from "@anthropic-ai/sdk";

const { url, model, name } = JSON.parse(process.argv[2]);
const client = new Anthropic({ baseURL: url, apiKey: "none", authToken: null, maxRetries: 0 });
const system = [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }];
const hello = [{ role: "user", content: "Hello" }];
const asked = { model, max_tokens: 24, temperature: 0, messages: hello };

const ask = (fields = {}, from = client) => from.messages.create({ ...asked, ...fields });

const summary = (message) => ({
  model: message.model,
  text: message.content.map((block) => block.text).join(""),
  stopReason: message.stop_reason,
  stopSequence: message.stop_sequence,
  usage: [message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens],
});

async function refused(request) {
  try {
    await request;
  } catch (error) {
    const { type, message } = error.error.error;
    return { kind: error.constructor.name, status: error.status, type, message, isNamed: Boolean(error.requestID) };
  }
  return null;
}

async function eventTypes() {
  const types = [];
  for await (const event of await ask({ stream: true })) types.push(event.type);
  return types;
}

async function helper() {
  let streamed = "";
  const stream = client.messages.stream(asked).on("text", (piece) => (streamed += piece));
  return { ...summary(await stream.finalMessage()), streamed };
}

async function conversation() {
  const messages = [];
  const turns = [];
  for (let number = 0; number < 4; number++) {
    messages.push({ role: "user", content: `I am ${name}. What is ${number} plus ${number}?` });
    const { data, response } = await ask({ max_tokens: 60, system, messages }).withResponse();
    turns.push({ ...summary(data), session: response.headers.get("kakeya-session") });
    messages.push({ role: "assistant", content: data.content });
  }
  return turns;
}

const whole = await ask();
const text = whole.content[0].text;
const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "" } };
const bearer = new Anthropic({ baseURL: url, apiKey: null, authToken: "none", maxRetries: 0 });
console.log(
  JSON.stringify({
    whole: { ...summary(whole), isNamed: Boolean(whole._request_id) },
    events: await eventTypes(),
    helper: await helper(),
    stopped: summary(await ask({ stop_sequences: [text.slice(3, 6)] })),
    prefilled: summary(await ask({ messages: [...hello, { role: "assistant", content: text.slice(0, 4) }] })),
    beta: summary(await client.beta.messages.create({ ...asked, betas: ["files-api-2025-04-14"] })),
    bearer: summary(await ask({}, bearer)),
    counted: (await client.messages.countTokens({ model, system, messages: hello })).input_tokens,
    turns: await conversation(),
    errors: {
      badRequest: await refused(ask({ max_tokens: 0 })),
      image: await refused(ask({ messages: [{ role: "user", content: [image] }] })),
      notFound: await refused(ask({ model: "other" })),
    },
  }),
);
