/**
 * What a tokenizer.json asks for, said so that `@huggingface/tokenizers` does it as Python's library does.
 *
 * Both come to the same ids with what is let through here, by test. What is not known to do so is refused by name: a
 * prompt of other ids than the model learned is worse than none.
 */

import { TokenizerError } from "./errors.js";
import { isObject, type Json } from "./files.js";

const NORMALIZERS = new Set(["NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace"]);
const DECODERS = new Set(["ByteFallback", "ByteLevel", "Fuse", "Metaspace", "Replace", "Strip"]);
const POST_PROCESSORS = new Set(["ByteLevel", "TemplateProcessing"]);
const CAPTURES = /(?<!\\)\((?!\?)/;
/** Of GPT-2. The library has it in its own words, which take other letters for blanks. */
const WORDS = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/**
 * @param name - whose, for errors.
 * @throws TokenizerError: it asks for what is not known to come to the same ids.
 */
export function mended(name: string, tokenizer: Json): Json {
  const refuse = (what: string): never => {
    throw new TokenizerError(
      `${name} cannot be used here: ${what} may come to other ids than it does in Python; encode with the Python SDK`,
    );
  };
  const { model, added_tokens: added } = tokenizer;
  if (!isObject(model) || !isObject(model.vocab) || (model.type ?? "BPE") !== "BPE" || !Array.isArray(model.merges)) {
    return refuse(`a model of the kind ${isObject(model) ? String(model.type) : "none"}`);
  }
  for (const affix of ["continuing_subword_prefix", "end_of_word_suffix"]) {
    if (isSaid(model[affix])) {
      refuse(affix);
    }
  }
  if (Array.isArray(added) && added.some((token: Json) => token.single_word === true)) {
    refuse("an added token of whole words only");
  }
  check(tokenizer.normalizer, NORMALIZERS, "normalizers", refuse);
  check(tokenizer.decoder, DECODERS, "decoders", refuse);
  check(tokenizer.post_processor, POST_PROCESSORS, "processors", refuse);
  const { normalizer = null, decoder = null, post_processor = null, pre_tokenizer = null } = tokenizer;
  return { ...tokenizer, normalizer, decoder, post_processor, pre_tokenizer: cutting(pre_tokenizer, refuse) };
}

type Refuse = (what: string) => never;

function isSaid(value: unknown): boolean {
  return value !== undefined && value !== null && value !== "";
}

function check(part: unknown, allowed: ReadonlySet<string>, name: string, refuse: Refuse): void {
  if (!isObject(part)) {
    return;
  }
  const type = String(part.type);
  if (type === "Sequence") {
    for (const each of part[name] as unknown[]) {
      check(each, allowed, name, refuse);
    }
  } else if (!allowed.has(type)) {
    refuse(type);
  }
}

/** A pre-tokenizer. */
function cutting(part: unknown, refuse: Refuse): Json | null {
  if (!isObject(part)) {
    return null;
  }
  switch (part.type) {
    case "Sequence":
      return sequence((part.pretokenizers as unknown[]).map((each) => cutting(each, refuse)));
    case "Split":
      return split(part, refuse);
    case "Digits":
      return isolated(part.individual_digits === true ? String.raw`\p{N}` : String.raw`\p{N}+`);
    case "Metaspace": {
      // The library puts blanks in, and does not cut at them.
      const blank = escaped(String(part.replacement));
      return part.split === false ? part : sequence([part, isolated(`${blank}[^${blank}]*`)]);
    }
    case "ByteLevel":
      if (part.use_regex === false) {
        return part;
      }
      return part.add_prefix_space === true
        ? refuse("ByteLevel with add_prefix_space")
        : sequence([isolated(WORDS), { ...part, use_regex: false }]);
    default:
      return refuse(String(part.type));
  }
}

function sequence(pretokenizers: readonly unknown[]): Json {
  return { type: "Sequence", pretokenizers };
}

function isolated(pattern: string): Json {
  return { type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", invert: false };
}

/** The library cuts a text at a pattern, and leaves the pieces alone, whatever it is asked to do with them. */
function split(part: Json, refuse: Refuse): Json {
  const { pattern, behavior, invert } = part as { pattern: Json; behavior: string; invert: boolean };
  const found = typeof pattern.Regex === "string" ? pattern.Regex : escaped(String(pattern.String));
  const other = `(?:(?!${found})[\\s\\S])`;
  if (behavior === "Removed" && !CAPTURES.test(found)) {
    return { ...part, pattern: { Regex: found } }; // the library keeps what it captures, and it captures texts
  }
  if (behavior === "Isolated") {
    return isolated(found); // what is found and what lies between, whichever of them is meant
  }
  if (!invert && behavior === "MergedWithPrevious") {
    return isolated(`${other}*(?:${found})|${other}+`);
  }
  if (!invert && behavior === "MergedWithNext") {
    return isolated(`(?:${found})${other}*|${other}+`);
  }
  return refuse(`Split with the behavior ${behavior}`);
}

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}

/** A pre-tokenizer, without what it does at the beginning of a text only: for a text behind another. */
export function withoutFirst(part: unknown): unknown {
  if (Array.isArray(part)) {
    return part.map(withoutFirst);
  }
  if (!isObject(part)) {
    return part;
  }
  const changed = Object.fromEntries(Object.entries(part).map(([name, value]) => [name, withoutFirst(value)]));
  return part.prepend_scheme === "first" ? { ...changed, prepend_scheme: "never" } : changed;
}
