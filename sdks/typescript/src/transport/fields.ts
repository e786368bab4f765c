/** Fields of requests, checked before they are sent. */

import { ScalarType, type DescField, type DescMessage, type MessageShape } from "@bufbuild/protobuf";

import { InvalidField, TokenOutOfVocabulary } from "../errors.js";

/** Token ids: an array of numbers, a Uint32Array, a generator, ... */
export type TokenIds = Iterable<number>;

const MAX_UINT32 = 2 ** 32 - 1;
const MAX_UINT64 = 2n ** 64n - 1n;

/**
 * Token ids as an array.
 *
 * @throws InvalidField something in it is not a whole number. TokenOutOfVocabulary: an id that no vocabulary has, as it
 * is below 0 or above 2^32 - 1.
 */
export function tokenList(tokenIds: TokenIds, field = "token_ids"): number[] {
  const ids = Array.from(iterable(tokenIds, field));
  for (const id of ids) {
    if (!Number.isInteger(id)) {
      throw invalid(field, `${String(id)} is no whole number`);
    }
    if (id < 0 || id > MAX_UINT32) {
      throw new TokenOutOfVocabulary(`${field}: ${id} is not between 0 and 2^32 - 1`, { metadata: { field } });
    }
  }
  return ids;
}

/**
 * Tags as an array.
 *
 * @throws InvalidField it is no sequence of bytes, as one tag alone is none.
 */
export function tagList(tags: Iterable<Uint8Array>): Uint8Array[] {
  const given: unknown[] = Array.from(iterable(tags, "tags"));
  if (!given.every((tag) => tag instanceof Uint8Array)) {
    throw invalid("tags", "not a sequence of bytes, 32 each");
  }
  return given;
}

/**
 * Sets the fields that are not undefined; lengths and bytes are given as numbers.
 *
 * @throws InvalidField a value does not fit its field; `metadata.field` names it. RangeError: a number above 2^53 - 1,
 * which is not exact. TypeError: there is no such field.
 */
export function fill<D extends DescMessage>(schema: D, request: MessageShape<D>, values: object): MessageShape<D> {
  for (const [name, value] of Object.entries(values)) {
    const field = schema.field[name];
    if (field === undefined) {
      throw new TypeError(`${schema.name} has no ${name}`);
    }
    if (value !== undefined) {
      (request as Record<string, unknown>)[name] = checked(field, value);
    }
  }
  return request;
}

/** The entries of a map by number, which may be an object. */
export function numbered<T>(given: ReadonlyMap<number, T> | Readonly<Record<number, T>>): [number, T][] {
  const isMap = given instanceof Map;
  return isMap
    ? [...(given as ReadonlyMap<number, T>)]
    : Object.entries(given).map(([key, value]) => [Number(key), value as T]);
}

/** The error of a value that does not fit its field. */
export function invalid(field: string, message: string): InvalidField {
  return new InvalidField(`${field}: ${message}`, { metadata: { field } });
}

/**
 * The value itself, if it can be iterated over.
 *
 * @throws InvalidField
 */
export function iterable<T>(value: Iterable<T>, field: string): Iterable<T> {
  if (typeof (value as Iterable<T> | null | undefined)?.[Symbol.iterator] !== "function") {
    throw invalid(field, "not a sequence");
  }
  return value;
}

function checked(field: DescField, value: unknown): unknown {
  if (field.fieldKind !== "scalar") {
    return value; // made by the SDK itself
  }
  switch (field.scalar) {
    case ScalarType.UINT32:
      if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > MAX_UINT32) {
        throw invalid(field.name, `${String(value)} is no whole number between 0 and 2^32 - 1`);
      }
      return value;
    case ScalarType.UINT64:
      return uint64(field.name, value);
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return ofType("number", field.name, value);
    case ScalarType.BOOL:
      return ofType("boolean", field.name, value);
    default:
      return ofType("string", field.name, value);
  }
}

function uint64(field: string, value: unknown): bigint {
  if (typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value)) {
    throw new RangeError(`${field}: ${value} is above 2^53 - 1, and not exact`);
  }
  const whole = typeof value === "bigint" || Number.isInteger(value) ? BigInt(value as bigint | number) : -1n;
  if (whole < 0n || whole > MAX_UINT64) {
    throw invalid(field, `${String(value)} is no whole number between 0 and 2^64 - 1`);
  }
  return whole;
}

function ofType(type: "number" | "boolean" | "string", field: string, value: unknown): unknown {
  if (typeof value !== type) {
    throw invalid(field, `${String(value)} is no ${type}`);
  }
  return value;
}
