/**
 * Methods of texts, as Python has them.
 *
 * A text may hold stand-ins. What a template asks of it is answered as of the text that is meant, and what is made of
 * it is marked where it was.
 */

import type { StandIns } from "../stand-ins.js";

// Python's, which are others than JavaScript's.
const BLANK = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const LEADING = new RegExp(`^[${BLANK}]+`);
const WORD = new RegExp(`[^${BLANK}]+`, "g");
// eslint-disable-next-line no-control-regex -- these end lines in Python
const LINE_END = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/g;
/** Of Unicode, which begin a word otherwise than in capitals. */
const DIGRAPHS: Readonly<Record<string, string>> = { Ǆ: "ǅ", Ǉ: "ǈ", Ǌ: "ǋ", Ǳ: "ǲ" };

/** What a method is given: texts with stand-ins, numbers, null, lists of texts. */
type Given = readonly unknown[];

/** The methods of a text in one rendering. */
export class Strings {
  /**
   * @param standIns - undefined where no text is marked.
   */
  constructor(private readonly standIns: StandIns | undefined) {}

  /** The text that is meant. */
  meant(text: string): string {
    return this.standIns?.unmark(text) ?? text;
  }

  /** Whether texts have such a method. */
  has(name: string): name is keyof typeof METHODS {
    return Object.hasOwn(METHODS, name);
  }

  /** What a method of a text makes: texts have stand-ins, lists are of texts. */
  call(name: keyof typeof METHODS, text: string, given: Given): unknown {
    const method: Method = METHODS[name];
    return method(
      new Subject(text, this.meant(text), this.standIns),
      given.map((each) => this.#plain(each)),
      given,
    );
  }

  #plain(given: unknown): unknown {
    if (Array.isArray(given)) {
      return given.map((each) => this.#plain(each));
    }
    return typeof given === "string" ? this.meant(given) : given;
  }
}

/** A text beside what is meant by it, letter by letter. */
class Subject {
  constructor(
    readonly marked: string,
    readonly meant: string,
    readonly standIns: StandIns | undefined,
  ) {}

  /** With other letters. */
  changed(change: (text: string) => string): string {
    const changed = change(this.meant);
    const marked = this.standIns?.mark(changed) ?? changed;
    if (changed.length !== this.meant.length) {
      return marked; // some letters became two; which of them were marked is no longer known
    }
    return Array.from({ length: changed.length }, (_, index) =>
      (this.marked[index] === this.meant[index] ? changed : marked).charAt(index),
    ).join("");
  }

  stripped(letters: unknown, left: boolean, right: boolean): string {
    const isStripped = stripping(letters);
    let [start, end] = [0, this.meant.length];
    while (left && start < end && isStripped(this.meant.charAt(start))) {
      start += 1;
    }
    while (right && start < end && isStripped(this.meant.charAt(end - 1))) {
      end -= 1;
    }
    return this.marked.slice(start, end);
  }

  /** Between places where something of a length stands. */
  cut(places: readonly number[], length: number): string[] {
    const starts = [0, ...places.map((place) => place + length)];
    return starts.map((start, index) => this.marked.slice(start, places[index]));
  }

  /** Where it is, from the left or the right, so many times at most. */
  places(wanted: string, most = Infinity, fromRight = false): number[] {
    const found: number[] = [];
    let place = fromRight ? this.meant.length : 0;
    while (found.length < most) {
      place = fromRight
        ? place < wanted.length
          ? -1
          : this.meant.lastIndexOf(wanted, place - wanted.length)
        : this.meant.indexOf(wanted, place);
      if (place < 0) {
        break;
      }
      found.push(place);
      place += fromRight ? 0 : wanted.length;
    }
    return fromRight ? found.reverse() : found;
  }
}

type Method = (text: Subject, given: Given, marked: Given) => unknown;

function stripping(letters: unknown): (letter: string) => boolean {
  return typeof letters === "string" ? (letter) => letters.includes(letter) : (letter) => LEADING.test(letter);
}

function most(count: unknown): number {
  return typeof count === "number" && count >= 0 ? count : Infinity;
}

function split(text: Subject, [separator, count]: Given, fromRight: boolean): string[] {
  if (typeof separator === "string") {
    if (separator === "") {
      throw new Error("empty separator");
    }
    return text.cut(text.places(separator, most(count), fromRight), separator.length);
  }
  const words = Array.from(text.meant.matchAll(WORD), (word) => [word.index, word.index + word[0].length] as const);
  const all = words.map(([start, end]) => text.marked.slice(start, end));
  const numCuts = most(count);
  const rest = fromRight ? words[words.length - numCuts - 1] : words[numCuts];
  if (rest === undefined) {
    return all;
  }
  return fromRight
    ? [text.marked.slice(0, rest[1]), ...all.slice(all.length - numCuts)]
    : [...all.slice(0, numCuts), text.marked.slice(rest[0])];
}

function replaced(text: Subject, [old, , count]: Given, [, other]: Given): string {
  if (typeof old !== "string" || typeof other !== "string") {
    throw new Error("replace() takes two texts");
  }
  if (old === "") {
    const letters = ["", ...Array.from(text.marked), ""];
    const numFirst = Math.min(most(count), letters.length - 1);
    const first = letters.slice(0, numFirst).map((letter) => letter + other);
    return first.join("") + letters.slice(numFirst).join("");
  }
  return text.cut(text.places(old, most(count)), old.length).join(other);
}

function partition(text: Subject, [separator]: Given, fromRight: boolean): string[] {
  const wanted = String(separator);
  const [place] = text.places(wanted, 1, fromRight);
  if (place === undefined) {
    return fromRight ? ["", "", text.marked] : [text.marked, "", ""];
  }
  const end = place + wanted.length;
  return [text.marked.slice(0, place), text.marked.slice(place, end), text.marked.slice(end)];
}

function lines(text: Subject, [keepsEnds]: Given): string[] {
  const found: string[] = [];
  let start = 0;
  for (const end of text.meant.matchAll(LINE_END)) {
    found.push(text.marked.slice(start, end.index + (keepsEnds === true ? end[0].length : 0)));
    start = end.index + end[0].length;
  }
  return start < text.meant.length ? [...found, text.marked.slice(start)] : found;
}

/** Whether it begins, or ends, with a text or with one of several. */
function isAt(text: Subject, wanted: unknown, end: boolean): boolean {
  const several: unknown[] = Array.isArray(wanted) ? wanted : [wanted];
  return several.some((each) => (end ? text.meant.endsWith(String(each)) : text.meant.startsWith(String(each))));
}

/** A place in letters of Unicode, as Python counts. */
function counted(text: Subject, place: number): number {
  return place < 0 ? -1 : Array.from(text.meant.slice(0, place)).length;
}

function titled(text: string): string {
  return text.replace(/\p{Cased}+/gu, capitalized);
}

function capitalized(text: string): string {
  const [first = "", ...others] = text;
  const [capital = "", ...rest] = DIGRAPHS[first.toUpperCase()] ?? first.toUpperCase(); // of one letter, perhaps two
  return capital + [...rest, ...others].join("").toLowerCase();
}

function joined(item: unknown): string {
  if (typeof item !== "string") {
    throw new Error("join() takes texts");
  }
  return item;
}

const METHODS = {
  capitalize: (text) => text.changed(capitalized),
  count: (text, [wanted]) => text.places(String(wanted)).length,
  endswith: (text, [wanted]) => isAt(text, wanted, true),
  find: (text, [wanted]) => counted(text, text.meant.indexOf(String(wanted))),
  isdigit: (text) => /^\p{Nd}+$/u.test(text.meant),
  isspace: (text) => text.meant !== "" && text.meant.replace(LEADING, "") === "",
  join: (text, _, [items]) => (items as readonly unknown[]).map(joined).join(text.marked),
  lower: (text) => text.changed((meant) => meant.toLowerCase()),
  lstrip: (text, [letters]) => text.stripped(letters, true, false),
  partition: (text, given) => partition(text, given, false),
  removeprefix: (text, [prefix]) =>
    text.meant.startsWith(String(prefix)) ? text.marked.slice(String(prefix).length) : text.marked,
  removesuffix: (text, [suffix]) =>
    suffix !== "" && text.meant.endsWith(String(suffix)) ? text.marked.slice(0, -String(suffix).length) : text.marked,
  replace: replaced,
  rfind: (text, [wanted]) => counted(text, text.meant.lastIndexOf(String(wanted))),
  rpartition: (text, given) => partition(text, given, true),
  rsplit: (text, given) => split(text, given, true),
  rstrip: (text, [letters]) => text.stripped(letters, false, true),
  split: (text, given) => split(text, given, false),
  splitlines: lines,
  startswith: (text, [wanted]) => isAt(text, wanted, false),
  strip: (text, [letters]) => text.stripped(letters, true, true),
  title: (text) => text.changed(titled),
  upper: (text) => text.changed((meant) => meant.toUpperCase()),
} as const satisfies Record<string, Method>;
