/** What filters and methods of a template are given. */

import type { Giving } from "./given.js";
import { isList, isMapping, isText, isUndefined, type Value } from "./jinja.js";

/** What filters of texts are, by the method that each is, and the names of what it takes. */
export const FILTERS: Readonly<Record<string, readonly [method: string, ...names: string[]]>> = {
  capitalize: ["capitalize"],
  lower: ["lower"],
  replace: ["replace", "old", "new", "count"],
  trim: ["strip", "chars"],
  upper: ["upper"],
};
/** Filters and tests that the library does otherwise than Jinja: none is better than another text. */
export const NOT_KNOWN = ["dictsort", "indent", "lower", "sort", "title", "upper"];
/** Filters for which nothing is an empty list. */
export const OF_LISTS = ["items", "map", "rejectattr", "selectattr"];
/** What `tojson` takes. */
export const JSON_NAMES = ["ensure_ascii", "indent", "separators", "sort_keys"];
/** Of what methods take by name, its place. */
const PLACES: Readonly<Record<string, number>> = { sep: 0, keepends: 0, maxsplit: 1, count: 2 };

/** What a method is given, that by name put where it belongs. */
export function inOrder(given: readonly unknown[]): unknown[] {
  const named = given.at(-1);
  if (!(named instanceof Map)) {
    return given.map(bare);
  }
  const placed = given.slice(0, -1).map(bare);
  for (const [name, value] of named as Map<string, Value>) {
    placed[PLACES[name] ?? placed.length] = bare(value.value);
  }
  return placed;
}

/** What a value holds, texts of a list among it. */
export function bare(held: unknown): unknown {
  return Array.isArray(held) ? (held as Value[]).map(({ value }) => value) : held;
}

/** What a loop goes through. */
export function listed(items: Value, giving: Giving): readonly Value[] {
  if (isList(items)) {
    return items.value;
  }
  if (isText(items)) {
    return Array.from(items.value, (letter) => giving.plain(letter));
  }
  if (isMapping(items)) {
    return Array.from(items.value.keys(), (name) => giving.plain(name));
  }
  if (isUndefined(items)) {
    return [];
  }
  throw new Error(`'${items.type}' object is not iterable`);
}
