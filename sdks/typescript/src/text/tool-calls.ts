/** The calls of tools in a history, as chat templates take them. */

import { createHash } from "node:crypto";

import { isObject, type Json } from "./files.js";
import { Numeral, parsed } from "./rendering/numeral.js";

const SHORT_ID = /^[A-Za-z0-9]{9}$/;
/** Of an argument's lists and objects: templates write them by recursion. */
const MAX_DEPTH = 64;

/**
 * The message, with the arguments of its calls as objects where they are such in a text.
 *
 * OpenAI's API has a text there, and templates have `tojson` or `items`, which take an object.
 */
export function withObjects(message: Json): Json {
  const changed: Record<string, unknown> = { ...message };
  if (Array.isArray(message.tool_calls)) {
    changed.tool_calls = message.tool_calls.map(decodedCall);
  }
  if ("function_call" in message) {
    // As it was said before there were several at once.
    changed.function_call = decodedCall(message.function_call);
  }
  return changed;
}

/** The message, with nine letters and digits in place of ids of another form; the same ones for the same id. */
export function withShortIds(message: Json): Json {
  const changed: Record<string, unknown> = { ...message };
  if (typeof message.tool_call_id === "string") {
    changed.tool_call_id = short(message.tool_call_id);
  }
  if (Array.isArray(message.tool_calls)) {
    changed.tool_calls = message.tool_calls.map((call: unknown) =>
      isObject(call) && typeof call.id === "string" ? { ...call, id: short(call.id) } : call,
    );
  }
  return changed;
}

function short(id: string): string {
  return SHORT_ID.test(id) ? id : createHash("sha256").update(id).digest("hex").slice(0, 9);
}

function decodedCall(call: unknown): unknown {
  if (!isObject(call)) {
    return call;
  }
  const changed: Record<string, unknown> = { ...call };
  if ("function" in call) {
    changed.function = decodedCall(call.function);
  }
  if ("arguments" in call) {
    // Of the function, or of a call that is written without one around it.
    changed.arguments = decoded(call.arguments);
  }
  return changed;
}

/** The JSON object that a text is. All else stays as it is. */
function decoded(given: unknown): unknown {
  if (typeof given !== "string") {
    return given;
  }
  let value: unknown;
  try {
    value = parsed(given);
  } catch {
    return given; // no JSON: the template is given the text
  }
  return isObject(value) && depth(value) <= MAX_DEPTH ? value : given;
}

function depth(value: unknown): number {
  let levels = 0;
  for (let level = [value].filter(isHolding); level.length > 0; levels += 1) {
    level = level.flatMap((each): unknown[] => Object.values(each)).filter(isHolding);
  }
  return levels;
}

function isHolding(value: unknown): value is object {
  return typeof value === "object" && value !== null && !(value instanceof Numeral);
}
