/** What a template is given, made from what the caller gave: its texts gathered, and marked where that matters. */

import { isObject } from "../files.js";
import type { StandIns } from "../stand-ins.js";
import type { Jinja, Value } from "./jinja.js";
import { Numeral } from "./numeral.js";
import { written } from "./printing.js";

/** A template writes control tokens with them (`<|user|>`); where they are words they are no texts. */
const ENUMERATED = new Set(["role", "type"]);
const WORD = /^[\p{L}_][\p{L}\p{N}_]*$/u;
/** Of calls: the names in them are the model's own. */
const ARGUMENTS = "arguments";
const NAME = "kakeya";

/** All texts of what is given, names of fields included, but for words that are no texts. */
export function texts(given: unknown): string[] {
  const found: string[] = [];
  gather(given, found);
  return found;
}

function gather(given: unknown, found: string[]): void {
  if (typeof given === "string") {
    found.push(given);
  } else if (Array.isArray(given)) {
    given.forEach((each) => {
      gather(each, found);
    });
  } else if (isObject(given) && !(given instanceof Numeral)) {
    for (const [name, each] of Object.entries(given)) {
      found.push(name);
      if (!isWord(name, each)) {
        gather(each, found);
      }
    }
  }
}

function isWord(name: string, given: unknown): boolean {
  return ENUMERATED.has(name) && typeof given === "string" && WORD.test(given);
}

/** Makes values of a template. */
export class Giving {
  readonly #scope: InstanceType<Jinja["Environment"]>;

  /**
   * @param standIns - what letters are exchanged for; undefined to mark nothing.
   */
  constructor(
    jinja: Jinja,
    private readonly standIns: StandIns | undefined,
  ) {
    this.#scope = new jinja.Environment();
  }

  /** A value of what JSON can hold; of what else there is its kind, as a text. */
  value(given: unknown, marksNames = false): Value {
    if (typeof given === "string") {
      return this.plain(this.standIns?.mark(given) ?? given);
    }
    if (given instanceof Numeral) {
      const value = this.plain(given.text.includes(".") || !Number.isInteger(given.value) ? 0.5 : 1);
      (value as { value: unknown }).value = given.value;
      written.set(value, given.text);
      return value;
    }
    if (Array.isArray(given)) {
      return this.list(given.map((each) => this.value(each, marksNames)));
    }
    if (isObject(given)) {
      const entries = Object.entries(given).filter(([, each]) => each !== undefined);
      const marked = entries.map(([name, each]) => {
        const isPlain = isWord(name, each);
        const value = isPlain ? this.plain(each) : this.value(each, marksNames || name === ARGUMENTS);
        return [this.#name(name, marksNames), value] as const;
      });
      return this.#filled({}, new Map(marked));
    }
    const isKnown = given === null || given === undefined || typeof given === "number" || typeof given === "boolean";
    return this.plain(isKnown ? given : `<${typeof given}>`);
  }

  /** A value of a text as it is, of a number, a boolean, null, or a function. */
  plain(given: unknown): Value {
    const value = this.#scope.set(NAME, given);
    this.#scope.variables.delete(NAME);
    return value;
  }

  /** A list of values. */
  list(values: readonly Value[]): Value {
    return this.#filled([], values);
  }

  /** Names that are words are those that templates ask for; only a model's own may be any. */
  #name(name: string, marksNames: boolean): string {
    return this.standIns && (marksNames || !WORD.test(name)) ? this.standIns.mark(name) : name;
  }

  #filled(empty: unknown, held: unknown): Value {
    const value = this.plain(empty);
    (value as { value: unknown }).value = held;
    return value;
  }
}
