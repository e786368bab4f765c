// Vercel's AI SDK on `@ai-sdk/openai-compatible`, with a tool: the messages of each response go back as the SDK makes them.
// It is driven as the drivers in Python are: see ../../../loops/drivers/driver.py.
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import { generateText, jsonSchema, isStepCount, streamText, tool } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";

const say = (said) => console.log(JSON.stringify(said));
const weather = tool({
  description: "How the weather will be.",
  inputSchema: jsonSchema({
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer" } },
    required: ["city", "days"],
  }),
  execute: async ({ city, days }) => `${days} days of sun in ${city}`,
});

async function hold(talk, answers) {
  const provider = createOpenAICompatible({ name: "kakeya", baseURL: talk.base_url, apiKey: "none", includeUsage: true });
  const given = {
    model: provider(talk.model),
    system: talk.system || undefined,
    maxOutputTokens: talk.max_tokens,
    tools: { get_weather: weather },
    stopWhen: isStepCount(4),
    maxRetries: 0,
  };
  const messages = [];
  for (const question of talk.questions) {
    messages.push({ role: "user", content: question });
    const result = talk.streams ? streamText({ ...given, messages, onError: () => {} }) : await generateText({ ...given, messages });
    if (talk.streams)
      for await (const part of result.fullStream) {
        if (part.type === "error") throw part.error;
      }
    messages.push(...(await result.responseMessages));
    answers.push(await result.text);
  }
}

const { version } = JSON.parse(readFileSync("node_modules/ai/package.json"));
say({ client: "ai", version });
for await (const line of createInterface({ input: process.stdin })) {
  const answers = [];
  let error = "";
  try {
    await hold(JSON.parse(line), answers);
  } catch (problem) {
    error = `${problem.name}: ${problem.message}`;
  }
  say({ answers, error });
}
