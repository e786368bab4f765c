/** Texts into ids, where it matters which letters may spell control tokens and which are text whatever they spell. */

import { PromptRefused } from "./errors.js";
import type { Rendered } from "./stand-ins.js";
import type { TextTokenizer } from "./text-tokenizer.js";

/** Of a text: a half-open interval, and the control token that is there. */
interface Place {
  readonly id: number;
  readonly start: number;
  readonly end: number;
}

/**
 * Encodes with one tokenizer.
 *
 * A text without control tokens is encoded as a whole, so that its ids are the library's. One with them is cut at those
 * that the template wrote, and only there: what lies between is encoded as the library does what lies between two
 * control tokens, by a tokenizer that has none.
 */
export class TextEncoder {
  readonly #tokenizer: TextTokenizer;
  /** Each added token, the longest first: the library takes the longest that begins where one begins. */
  readonly #added: RegExp | undefined;
  readonly #ids: ReadonlyMap<string, number>;
  /** A letter that stands in no added token. */
  readonly #mask: string;

  constructor(tokenizer: TextTokenizer) {
    const { added } = tokenizer;
    const longest = [...added].sort((first, second) => second.content.length - first.content.length);
    const patterns = longest.map(({ content, lstrip, rstrip }) => {
      return `${lstrip ? "\\s*" : ""}(?:${escaped(content)})${rstrip ? "\\s*" : ""}`;
    });
    this.#tokenizer = tokenizer;
    this.#added = added.length > 0 ? new RegExp(patterns.join("|"), "g") : undefined;
    this.#ids = new Map(added.map(({ id, content }) => [content.trim(), id]));
    this.#mask = letterOfNone(added.map(({ content }) => content).join(""));
  }

  /** A text that holds no control tokens, whatever it spells. */
  asText(text: string, specialTokens: boolean): number[] {
    const ids = this.#plain(text, false);
    if (!specialTokens) {
      return ids;
    }
    // What the tokenizer puts around a text is the same for any.
    const [bare, whole] = [this.#tokenizer.encode("a"), this.#tokenizer.encode("a", true)];
    const before = whole.findIndex((_, place) => bare.every((id, index) => whole[place + index] === id));
    return [...whole.slice(0, before), ...ids, ...whole.slice(before + bare.length)];
  }

  /**
   * What a template wrote: the letters that stand-ins stand for are text, and all others are parsed.
   *
   * @throws PromptRefused: there is no other way to write what the text spells.
   */
  rendered(rendered: Rendered): number[] {
    const { meant, marked, standIns } = rendered;
    const isForged = ({ start, end }: Place): boolean => marked.slice(start, end) !== meant.slice(start, end);
    const { control } = this.#tokenizer;
    if (!standIns || !(control.looksAtNormalized || this.#controls(meant).some(isForged))) {
      return this.#tokenizer.encode(meant);
    }
    const ids: number[] = [];
    let last = 0;
    for (const { id, start, end } of this.#controls(standIns.masked(marked, this.#mask))) {
      ids.push(...this.#plain(meant.slice(last, start), last > 0), id);
      last = end;
    }
    return [...ids, ...this.#plain(meant.slice(last), last > 0)];
  }

  #controls(text: string): Place[] {
    const places: Place[] = [];
    for (const { 0: content, index } of this.#added ? text.matchAll(this.#added) : []) {
      const id = this.#ids.get(content.trim());
      if (id !== undefined && this.#tokenizer.control.contents.has(id)) {
        places.push({ id, start: index, end: index + content.length });
      }
    }
    return places;
  }

  /** Some vocabularies lead from a control token's letters to its id; there the text is cut once more. */
  #plain(text: string, goesOn: boolean): number[] {
    if (text === "") {
      return [];
    }
    const ids = this.#tokenizer.encodePlain(text, goesOn);
    const { contents } = this.#tokenizer.control;
    const spelled = ids
      .map((id) => contents.get(id))
      .find((content) => content !== undefined && text.includes(content));
    if (spelled === undefined) {
      return ids;
    }
    if (spelled.length < 2) {
      throw new PromptRefused(`the tokenizer has no way to write ${JSON.stringify(spelled)} but as a control token`);
    }
    const cut = text.indexOf(spelled) + 1;
    return [...this.#plain(text.slice(0, cut), goesOn), ...this.#plain(text.slice(cut), true)];
  }
}

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}

function letterOfNone(letters: string): string {
  const taken = new Set(letters.toLowerCase());
  let code = 0x61;
  while (taken.has(String.fromCharCode(code)) || !/\p{L}/u.test(String.fromCharCode(code))) {
    code += 1;
  }
  return String.fromCharCode(code);
}
