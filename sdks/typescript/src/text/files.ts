/** The files of a tokenizer's directory, and what those beside it say of tokens. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { TokenizerError } from "./errors.js";

/** A JSON object. */
export type Json = Readonly<Record<string, unknown>>;

const TOKENIZER = "tokenizer.json";
/** What vocabularies lie in otherwise, which only the libraries of their makers read. */
const OTHER_VOCABULARIES = /\.model(\.v.*)?$|^tekken\.json$|\.tiktoken$|^vocab\./;
/** Of config.json, one of which is the language model's. */
const PARTS = ["decoder", "generator", "text_config"];

/**
 * @param file - its path.
 * @returns what it holds; empty where there is no file.
 * @throws TokenizerError: it is no JSON object, or cannot be read.
 */
export function read(file: string): Json {
  if (!existsSync(file)) {
    return {};
  }
  let document: unknown;
  try {
    document = JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    throw new TokenizerError(`${file} cannot be read: ${(error as Error).message}`, error);
  }
  if (!isObject(document)) {
    throw new TokenizerError(`${file} cannot be read: it is no JSON object`);
  }
  return document;
}

export function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * What tokenizer.json holds.
 *
 * @throws TokenizerError: there is none, with the cure.
 */
export function readTokenizer(directory: string): Json {
  if (!existsSync(directory)) {
    throw new TokenizerError(`${directory} is no directory`);
  }
  const file = join(directory, TOKENIZER);
  if (existsSync(file)) {
    return read(file);
  }
  const others = readdirSync(directory).filter((name) => OTHER_VOCABULARIES.test(name));
  if (others.length === 0) {
    throw new TokenizerError(`${directory} has no ${TOKENIZER}`);
  }
  throw new TokenizerError(
    `${directory} has no ${TOKENIZER}, only ${others.sort().join(", ")}; write one once, where transformers and ` +
      `sentencepiece are installed: python -c "from transformers import AutoTokenizer as T; ` +
      `T.from_pretrained('${directory}').save_pretrained('${directory}')"`,
  );
}

/**
 * What ends an answer by the files beside a tokenizer: by generation_config.json, else by config.json, else by the
 * language model's part of that. Ids that the model cannot say, as configs of cut-down models have them, are left out.
 *
 * @throws TokenizerError: one of them cannot be read.
 */
export function eosTokenIds(directory: string): number[] {
  const whole = join(directory, "config.json");
  const generation = join(directory, "generation_config.json");
  const config = read(whole);
  const part = PARTS.map((name) => config[name]).find(isObject) ?? {};
  const said = [ends(generation, read(generation)), ends(whole, config), ends(whole, part)];
  const size = part.vocab_size ?? config.vocab_size;
  return (said.find((ids) => ids.length > 0) ?? []).filter((id) => typeof size !== "number" || id < size);
}

function ends(file: string, { eos_token_id: said }: Json): number[] {
  const ids: unknown[] = Array.isArray(said) ? said : said === undefined || said === null ? [] : [said];
  if (!ids.every((id): id is number => Number.isInteger(id) && (id as number) >= 0)) {
    throw new TokenizerError(
      `${file} cannot be read: eos_token_id is ${JSON.stringify(said)}, neither a token id nor a list of them`,
    );
  }
  return ids;
}
