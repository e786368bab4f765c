/** Values of a template as Python prints, compares and puts them into JSON. */

import type { StandIns } from "../stand-ins.js";
import { isList, isMapping, isText, type Value } from "./jinja.js";
import { float, number } from "./numeral.js";

const KEPT = /[^\x20-\x7e]/g;
const ESCAPES: Readonly<Record<string, string>> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const UNPRINTED = /[\\\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

/** How JSON is laid out. */
export interface Layout {
  readonly indent?: number | undefined;
  readonly itemSeparator?: string | undefined;
  readonly nameSeparator?: string | undefined;
  readonly sortsNames?: boolean;
}

/** A number that was read, which is not written as JavaScript would. */
export const written = new WeakMap<Value, string>();

/** Prints in one rendering. */
export class Printing {
  /**
   * @param standIns - undefined where no text is marked.
   */
  constructor(private readonly standIns: StandIns | undefined) {}

  /** As Python's `str` does; an undefined value is nothing. */
  shown(value: Value): string {
    return isText(value) ? value.value : this.#shown(value);
  }

  /** As Python's `%` fills a text. Throws where it has a directive that is not known here. */
  formatted(form: Value, values: readonly Value[]): string {
    let num = 0;
    return this.shown(form).replace(/%(.)?/g, (_, directive?: string) => {
      if (directive === "%") {
        return "%";
      }
      const value = values[num];
      num += 1;
      if (!value || (directive !== "s" && directive !== "d")) {
        throw new Error(value ? `%${directive ?? ""} is no directive` : "not enough arguments for format string");
      }
      return this.shown(value);
    });
  }

  /** Whether they are equal. */
  equal(left: Value, right: Value): boolean {
    if (isText(left) && isText(right)) {
      return this.#meant(left.value) === this.#meant(right.value);
    }
    if (isList(left) && isList(right)) {
      const others = right.value;
      return left.value.length === others.length && left.value.every((each, i) => this.equal(each, others[i] ?? each));
    }
    if (isMapping(left) && isMapping(right)) {
      const others = right.value;
      return (
        left.value.size === others.size &&
        [...left.value].every(([name, each]) => {
          const other = others.get(name);
          return other !== undefined && this.equal(each, other);
        })
      );
    }
    return isNumeric(left) && isNumeric(right)
      ? Number(left.value) === Number(right.value)
      : left.type === right.type && left.value === right.value;
  }

  /** As Python's `json.dumps` writes it. */
  json(value: Value, layout: Layout, depth = 0): string {
    if (isText(value)) {
      return JSON.stringify(value.value);
    }
    const inner = (each: Value): string => this.json(each, layout, depth + 1);
    if (isList(value)) {
      return this.#laidOut("[", "]", value.value.map(inner), layout, depth);
    }
    if (isMapping(value)) {
      const { nameSeparator = ": ", sortsNames = false } = layout;
      const entries = [...value.value];
      if (sortsNames) {
        entries.sort(([first], [second]) => (this.#meant(first) < this.#meant(second) ? -1 : 1));
      }
      const items = entries.map(([name, each]) => `${JSON.stringify(name)}${nameSeparator}${inner(each)}`);
      return this.#laidOut("{", "}", items, layout, depth);
    }
    switch (value.type) {
      case "NullValue":
        return "null";
      case "BooleanValue":
        return String(value.value);
      case "IntegerValue":
      case "FloatValue":
        return this.#shown(value);
      default:
        throw new Error(`Object of type ${value.type} is not JSON serializable`);
    }
  }

  /** JSON whose letters that are not ASCII are escaped. */
  escaped(json: string): string {
    return json.replace(KEPT, (letter) => {
      const meant = this.#meant(letter);
      if (/[\x20-\x7e]/.test(meant)) {
        return letter;
      }
      const escape = `\\u${meant.charCodeAt(0).toString(16).padStart(4, "0")}`;
      return letter === meant ? escape : (this.standIns?.mark(escape) ?? escape);
    });
  }

  #laidOut(open: string, close: string, items: readonly string[], layout: Layout, depth: number): string {
    const { indent, itemSeparator = indent === undefined ? ", " : "," } = layout;
    if (indent === undefined || items.length === 0) {
      return open + items.join(itemSeparator) + close;
    }
    const line = `\n${" ".repeat(indent * depth)}`;
    const inner = line + " ".repeat(indent);
    return open + inner + items.join(itemSeparator + inner) + line + close;
  }

  #meant(text: string): string {
    return this.standIns?.unmark(text) ?? text;
  }

  #shown(value: Value): string {
    if (isText(value)) {
      return this.#quoted(value.value);
    }
    if (isList(value)) {
      const items = value.value.map((each) => this.#shown(each));
      return value.type === "TupleValue" ? `(${items.join(", ")})` : `[${items.join(", ")}]`;
    }
    if (isMapping(value)) {
      return `{${[...value.value].map(([name, each]) => `${this.#quoted(name)}: ${this.#shown(each)}`).join(", ")}}`;
    }
    switch (value.type) {
      case "UndefinedValue":
        return "";
      case "NullValue":
        return "None";
      case "BooleanValue":
        return value.value === true ? "True" : "False";
      case "IntegerValue":
        return written.get(value) ?? number(value.value as number);
      case "FloatValue":
        return written.get(value) ?? float(value.value as number);
      default:
        return `<${value.type}>`;
    }
  }

  /** As Python's `repr` writes a text. */
  #quoted(text: string): string {
    const meant = this.#meant(text);
    const quote = meant.includes("'") && !meant.includes('"') ? '"' : "'";
    const shown = meant.replace(UNPRINTED, escape).replaceAll(quote, quote === "'" ? "\\'" : quote);
    return quote + (meant === text ? shown : (this.standIns?.mark(shown) ?? shown)) + quote;
  }
}

function escape(letter: string): string {
  const code = letter.codePointAt(0) ?? 0;
  const mark = code < 0x100 ? "x" : code < 0x10000 ? "u" : "U";
  return ESCAPES[letter] ?? `\\${mark}${code.toString(16).padStart({ x: 2, u: 4, U: 8 }[mark], "0")}`;
}

function isNumeric(value: Value): boolean {
  return value.type === "IntegerValue" || value.type === "FloatValue" || value.type === "BooleanValue";
}
