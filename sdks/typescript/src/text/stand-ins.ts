/**
 * Texts whose letters can be told, after a template has written them, from those of the template itself.
 *
 * A template is a program: it trims a text, cuts it at `</think>`, puts it in capitals, adds it to others, writes it as
 * JSON. So the mark is in each letter: one that could be part of a control token is exchanged for a stand-in, and from
 * the stand-in the letter is known. Whatever is done to a text, its letters remain marked, and what a template writes
 * itself is not. Stand-ins are letters of Unicode's private use that occur nowhere in what is rendered, one UTF-16 code
 * unit for another, so that each letter keeps its place.
 */

import { PromptRefused } from "./errors.js";

const FIRST = 0xe000;
const LAST = 0xf8ff;

/** Letters that are exchanged in one rendering, each with its stand-in. */
export class StandIns {
  readonly #standIns = new Map<string, string>();
  readonly #letters = new Map<string, string>();

  /**
   * @param letters - UTF-16 code units.
   * @param texts - what is rendered: no letter in it may be taken for a stand-in.
   *
   * @throws PromptRefused: these hold so many letters of private use that there is none left.
   */
  constructor(letters: Iterable<string>, texts: Iterable<string>) {
    const taken = new Set<string>();
    for (const text of texts) {
      for (const [letter] of text.matchAll(/[\ue000-\uf8ff]/g)) {
        taken.add(letter);
      }
    }
    let next = FIRST;
    for (const letter of letters) {
      while (taken.has(String.fromCharCode(next))) {
        next += 1;
      }
      if (next > LAST) {
        throw new PromptRefused("the texts hold too many letters of private use to be told from control tokens");
      }
      const standIn = String.fromCharCode(next);
      this.#standIns.set(letter, standIn);
      this.#letters.set(standIn, letter);
      next += 1;
    }
  }

  /** The text with stand-ins. */
  mark(text: string): string {
    return exchanged(text, (letter) => this.#standIns.get(letter));
  }

  /** The text that it stands for. */
  unmark(marked: string): string {
    return exchanged(marked, (letter) => this.#letters.get(letter));
  }

  /** With this letter for each stand-in. */
  masked(marked: string, mask: string): string {
    return exchanged(marked, (letter) => (this.#letters.has(letter) ? mask : undefined));
  }
}

function exchanged(text: string, exchange: (letter: string) => string | undefined): string {
  let made = "";
  let start = 0;
  for (let index = 0; index < text.length; index += 1) {
    const other = exchange(text.charAt(index));
    if (other !== undefined) {
      made += text.slice(start, index) + other;
      start = index + 1;
    }
  }
  return start === 0 ? text : made + text.slice(start);
}

/** What a template wrote. */
export class Rendered {
  /**
   * @param marked - with stand-ins.
   * @param standIns - undefined where no text was marked.
   */
  constructor(
    readonly marked: string,
    readonly standIns?: StandIns,
  ) {}

  /** The text that it stands for. */
  get meant(): string {
    return this.standIns?.unmark(this.marked) ?? this.marked;
  }

  /** A part of it: each letter of what is meant has the same place in what is marked. */
  slice(start: number, end?: number): Rendered {
    return new Rendered(this.marked.slice(start, end), this.standIns);
  }
}
