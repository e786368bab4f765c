/** Numbers as Python writes them. */

const LITERAL = /"(?:[^"\\]|\\.)*"(\s*:)?|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/;
const MARK = "kakeya numeral";

/** A number of a JSON text, which JavaScript's own might not hold: 1.0 is written otherwise than 1. */
export class Numeral {
  readonly value: number;
  /** As Python writes it. */
  readonly text: string;

  constructor(literal: string) {
    this.value = Number(literal);
    this.text = /^-?\d+$/.test(literal) ? BigInt(literal).toString() : float(this.value);
  }
}

/**
 * The value of a JSON text, with a `Numeral` for each number.
 *
 * @throws SyntaxError: it is no JSON, a name comes twice in one of its objects, or a number is beyond 64 bits.
 */
export function parsed(text: string): unknown {
  JSON.parse(text);
  let numNames = 0;
  const quoted = text.replace(LITERAL, (literal: string, colon: string | undefined) => {
    numNames += colon === undefined ? 0 : 1;
    return literal.startsWith('"') ? literal : `{"${MARK}":"${literal}"}`;
  });
  const value: unknown = JSON.parse(quoted, (_, each: unknown) => {
    if (typeof each !== "object" || each === null || Array.isArray(each)) {
      return each;
    }
    const literal = (each as Record<string, unknown>)[MARK];
    if (typeof literal !== "string") {
      numNames -= Object.keys(each).length;
      return each;
    }
    const numeral = new Numeral(literal);
    if (!Number.isFinite(numeral.value)) {
      throw new SyntaxError(`${literal} is beyond 64 bits`);
    }
    return numeral;
  });
  if (numNames !== 0) {
    throw new SyntaxError("a name comes twice");
  }
  return value;
}

/** What Jinja's filters `int` and `float` read in a text; undefined where that is no number. */
export function numeralIn(text: string, isWhole: boolean): Numeral | undefined {
  const digits = text.trim();
  if (!NUMBER.test(digits)) {
    return undefined;
  }
  const value = Number(digits);
  return new Numeral(isWhole ? number(Math.trunc(value)) : float(value));
}

/** A number of JavaScript as Python writes it: a whole one is an int there. */
export function number(value: number): string {
  return Number.isInteger(value) ? BigInt(value).toString() : float(value);
}

/** As Python writes a float. */
export function float(value: number): string {
  if (!Number.isFinite(value)) {
    return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  }
  const [digits = "", exponent = ""] = value.toExponential().split("e");
  const power = Number(exponent);
  if (power < -4 || power >= 16) {
    return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  const shown = Object.is(value, -0)
    ? "-0"
    : power < 0
      ? value.toFixed(-power + digits.replace(/\D/g, "").length - 1)
      : String(value);
  return shown.includes(".") ? shown : `${shown}.0`;
}
