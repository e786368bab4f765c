/** What the files beside a tokenizer say of it: its special tokens, what else was added, its chat templates. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";

import { TokenizerError } from "./errors.js";
import { isObject, read, type Json } from "./files.js";

/** A token that was added to what a vocabulary learned, as tokenizer.json has it. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly special: boolean;
  readonly normalized: boolean;
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  readonly single_word: boolean;
}

const NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
const TEMPLATES = "additional_chat_templates";

/** As transformers reads these files beside a tokenizer.json. */
export interface TokenizerConfig {
  /** By their names, as templates are told them. */
  readonly specialTokens: Readonly<Record<string, string>>;
  /** What the vocabulary has, too, if tokenizer.json does not name it. */
  readonly addedTokens: readonly Omit<AddedToken, "id">[];
  /** Chat templates by their names, of which `default` and `tool_use` have a meaning. */
  readonly templates: Readonly<Record<string, string>>;
  /** Whether blanks in front of punctuation are taken out of what is decoded, although that changes what was said. */
  readonly cleansUp: boolean;
}

/**
 * @throws TokenizerError: a file cannot be read, or says what cannot be.
 */
export function loadConfig(directory: string): TokenizerConfig {
  const file = join(directory, "tokenizer_config.json");
  let config = read(file);
  let numbered = config.added_tokens_decoder;
  if (numbered === undefined || numbered === null) {
    // As older files have it.
    config = { ...config, ...read(join(directory, "special_tokens_map.json")) };
    const old = Object.entries(read(join(directory, "added_tokens.json")));
    numbered = Object.fromEntries(old.map(([content, id]) => [String(id), { content }]));
  }
  const { named, unnamed } = specialTokens(file, config);
  const special = new Set([...Object.values(named), ...unnamed].map(({ content }) => content));
  const added = Object.entries(numbered as Json)
    .sort(([first], [second]) => Number(first) - Number(second))
    .map(([, token]) => addedToken(file, "an added token", token))
    .map((token) => (special.has(token.content) ? { ...token, special: true } : token));
  return {
    specialTokens: Object.fromEntries(Object.entries(named).map(([name, { content }]) => [name, content])),
    addedTokens: [...added, ...Object.values(named), ...unnamed],
    templates: templates(file, directory, config.chat_template),
    cleansUp:
      config.clean_up_tokenization_spaces === true &&
      config.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output === true,
  };
}

type Unnumbered = Omit<AddedToken, "id">;

function specialTokens(file: string, config: Json): { named: Record<string, Unnumbered>; unnamed: Unnumbered[] } {
  const extra = [config.extra_special_tokens, config.additional_special_tokens].find(isFilled) ?? [];
  const isToken = (value: unknown): boolean => typeof value === "string" || isObject(value);
  const others = Object.keys(config).filter((name) => name.endsWith("_token") && isToken(config[name]));
  const given = Object.fromEntries([...NAMES, ...others].map((name) => [name, config[name]]));
  const all = Object.entries({ ...given, ...(isObject(extra) ? extra : {}) }).filter(([, token]) => isFilled(token));
  const marked = (name: string, token: unknown): Unnumbered => ({ ...addedToken(file, name, token), special: true });
  return {
    named: Object.fromEntries(all.map(([name, token]) => [name, marked(name, token)])),
    unnamed: (Array.isArray(extra) ? extra : []).map((token) => marked("extra_special_tokens", token)),
  };
}

function isFilled(value: unknown): boolean {
  return value !== undefined && value !== null && !(Array.isArray(value) && value.length === 0);
}

function addedToken(file: string, name: string, said: unknown): Unnumbered {
  const token: unknown = typeof said === "string" ? { content: said } : said;
  if (!isObject(token) || typeof token.content !== "string") {
    throw new TokenizerError(`${file} cannot be read: ${name} is ${JSON.stringify(said)}, which is no token`);
  }
  const isSpecial = token.special === true;
  return {
    content: token.content,
    special: isSpecial,
    normalized: typeof token.normalized === "boolean" ? token.normalized : true,
    lstrip: token.lstrip === true,
    rstrip: token.rstrip === true,
    single_word: token.single_word === true,
  };
}

/** Those in files of their own, else those in tokenizer_config.json: one, or several with names. */
function templates(file: string, directory: string, said: unknown): Record<string, string> {
  const folder = join(directory, TEMPLATES);
  const alone = join(directory, "chat_template.jinja");
  const names = existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith(".jinja")) : [];
  const found = new Map<string, unknown>();
  for (const name of names.sort()) {
    found.set(basename(name, ".jinja"), readFileSync(join(folder, name), "utf8"));
  }
  if (existsSync(alone)) {
    found.set("default", readFileSync(alone, "utf8"));
  }
  if (found.size === 0) {
    for (const [name, template] of inConfig(said)) {
      found.set(name, template);
    }
  }
  for (const template of found.values()) {
    if (typeof template !== "string") {
      throw new TokenizerError(`${file} cannot be read: its chat template is no text`);
    }
  }
  return Object.fromEntries(found) as Record<string, string>;
}

function inConfig(said: unknown): [string, unknown][] {
  if (Array.isArray(said)) {
    return (said as { name: string; template: unknown }[]).map(({ name, template }) => [name, template]);
  }
  if (isObject(said)) {
    return Object.entries(said);
  }
  return said === undefined || said === null ? [] : [["default", said]];
}
