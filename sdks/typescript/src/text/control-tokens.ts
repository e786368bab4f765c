/** Which tokens a text must not become: those that were added to a vocabulary to mark what is what. */

import type { AddedToken } from "./tokenizer-config.js";

/** As SentencePiece writes a blank. */
const BLANK = "\u2581";
/** JSON writes these, and what is below a blank, with a backslash in front, which a stand-in would not get. */
const NEVER_EXCHANGED = /["\\\s]|[\0-\x20]/;
const NO_WORD = /[^\p{L}\p{N}\s]/u;
const NO_ASCII = /[^\0-\x7f]/gu;

/** Tells where texts could be part of a control token. */
export interface Control {
  /** The letters that are to be exchanged, if any of the texts could; undefined if none could. */
  /** Whether some are looked for in what a normalizer makes of a text, where other letters may spell them. */
  get looksAtNormalized(): boolean;

  lettersOn(texts: readonly string[]): Set<string> | undefined;
}

/**
 * The control tokens of a tokenizer, and which texts could be part of one.
 *
 * Added tokens of blanks alone, as some vocabularies have them for code, are text. So are words: letters and digits
 * that are not special, which were added to be one token.
 */
export class ControlTokens implements Control {
  /** What each is written as, by its id. */
  readonly contents: ReadonlyMap<number, string>;
  readonly #letters: ReadonlySet<string>;
  readonly #edges: ReadonlySet<string>;
  readonly #all: string;
  readonly #longest: number;
  readonly #normalize: ((text: string) => string) | undefined;

  /**
   * @param added - all added tokens.
   * @param normalize - what the tokenizer makes of a text before it looks for tokens that are `normalized`.
   */
  constructor(added: readonly AddedToken[], normalize?: (text: string) => string) {
    const tokens = added.filter(isControl);
    const texts = tokens.map(({ content }) => content.trim());
    this.contents = new Map(tokens.map(({ id, content }) => [id, content]));
    this.#letters = new Set(texts.flatMap((text) => text.split("")).filter(isExchanged));
    this.#edges = new Set(texts.flatMap((text) => [text.charAt(0), text.charAt(text.length - 1)]));
    this.#all = texts.join("\0");
    this.#longest = Math.max(0, ...texts.map(({ length }) => length));
    this.#normalize = tokens.some(({ normalized }) => normalized) ? normalize : undefined;
  }

  /** Whether some are looked for in what a normalizer makes of a text, where other letters may spell them. */
  get looksAtNormalized(): boolean {
    return this.#normalize !== undefined;
  }

  lettersOn(texts: readonly string[]): Set<string> | undefined {
    const made = this.#normalize ? this.#lettersThatBecome(texts) : [];
    if (made.length === 0 && !texts.some((text) => this.#isPart(text))) {
      return undefined;
    }
    return new Set([...this.#letters, ...made]);
  }

  /** Whether it could be part of one: a part that is not the whole text holds the token's first letter or its last. */
  #isPart(text: string): boolean {
    for (let index = 0; index < text.length; index += 1) {
      if (this.#edges.has(text.charAt(index))) {
        return true;
      }
    }
    const bare = text.trim();
    return bare !== "" && text.length <= this.#longest && this.#all.includes(bare);
  }

  /** Of some letters a normalizer makes one of a control token's. */
  #lettersThatBecome(texts: readonly string[]): string[] {
    const letters = new Set(texts.flatMap((text) => text.match(NO_ASCII) ?? []));
    const become = [...letters].filter((letter) => {
      const normalized = this.#normalize?.(letter) ?? letter;
      return normalized !== letter && normalized.split("").some((each) => this.#letters.has(each));
    });
    return become.flatMap((letter) => letter.split(""));
  }
}

function isControl({ content, special }: AddedToken): boolean {
  const bare = content.replaceAll(BLANK, " ").trim();
  const isWord = !special && !NO_WORD.test(bare);
  return !isWord && bare.split("").some(isExchanged);
}

function isExchanged(letter: string): boolean {
  return !NEVER_EXCHANGED.test(letter);
}
