/** A last message that is left open, so that the model goes on with its text. */

import { randomBytes } from "node:crypto";

import type { Message } from "./chat-template.js";
import { PromptRefused } from "./errors.js";
import { isObject } from "./files.js";
import type { Rendered } from "./stand-ins.js";

/**
 * A conversation up to the end of the last message's text, without what the template writes behind that.
 *
 * As transformers has `continue_final_message`: white space at the text's end stays where the template keeps it.
 *
 * @param render - what a template writes, without the beginning of an answer.
 * @throws PromptRefused: the last message has no text, or the template leaves it out; and what `render` throws.
 */
export function leftOpen(messages: readonly Message[], render: (messages: readonly Message[]) => Rendered): Rendered {
  const last = messages.at(-1);
  if (last === undefined) {
    throw new PromptRefused("there are no messages");
  }
  const marker = `Kakeyaopen${randomBytes(8).toString("hex")}`; // which no text foresees
  const rendered = render([...messages.slice(0, -1), marked(last, `${marker} `)]);
  const { meant } = rendered;
  const place = meant.lastIndexOf(marker);
  if (place < 0) {
    throw new PromptRefused("the chat template leaves out the text that is to be gone on with");
  }
  const isKept = meant.startsWith(" ", place + marker.length);
  return rendered.slice(0, isKept ? place : meant.slice(0, place).trimEnd().length);
}

/** The message with a marker behind its text. */
function marked(message: Message, marker: string): Message {
  const { content } = message;
  if (typeof content === "string") {
    return { ...message, content: content + marker };
  }
  const parts: unknown[] = Array.isArray(content) ? content : [];
  const place = parts.findLastIndex((part) => isObject(part) && typeof part.text === "string");
  if (place < 0) {
    throw new PromptRefused("the last message has no text to go on with");
  }
  const part = parts[place] as { text: string };
  return { ...message, content: parts.with(place, { ...part, text: part.text + marker }) };
}
