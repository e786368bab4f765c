// Vercel's AI SDK on `@ai-sdk/openai-compatible`: the messages of each response go back as the SDK makes them.
// It is driven as the drivers in Python are: see ../driver.py.
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import { generateText, streamText } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";

const say = (said) => console.log(JSON.stringify(said));

async function hold(talk, answers) {
  const provider = createOpenAICompatible({ name: "kakeya", baseURL: talk.base_url, apiKey: "none", includeUsage: true });
  const given = {
    model: provider(talk.model),
    system: talk.system || undefined,
    maxOutputTokens: talk.max_tokens,
    stopSequences: talk.stop.length ? talk.stop : undefined,
    maxRetries: 0,
  };
  const messages = [];
  for (const question of talk.questions) {
    messages.push({ role: "user", content: question });
    if (talk.streams) {
      const result = streamText({ ...given, messages, onError: () => {} });
      let text = "";
      for await (const part of result.fullStream) {
        if (part.type === "error") throw part.error;
        if (part.type === "text-delta") text += part.text;
      }
      messages.push(...(await result.response).messages);
      answers.push(text);
    } else {
      const result = await generateText({ ...given, messages });
      messages.push(...result.response.messages);
      answers.push(result.text);
    }
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
