/** Messages of the contract as plain objects, which JSON can hold. */

import { create, type DescEnum, type DescMessage, type Message, type MessageShape } from "@bufbuild/protobuf";

import { number64 } from "./number64.js";

/** A message as a plain object: 64-bit numbers as numbers, names of enumerations in small letters, null for unset. */
export type Plain<T> = T extends bigint
  ? number
  : T extends number
    ? `${number}` extends `${T}` // not where it is an enumeration
      ? number
      : string
    : T extends readonly (infer E)[]
      ? readonly Plain<E>[]
      : T extends Message
        ? { readonly [K in keyof T as Exclude<K, "$typeName" | "$unknown">]-?: Plain<Value<T[K]>> }
        : T;

/** What is optional in a message is null in a plain object. */
type Value<T> = undefined extends T ? Exclude<T, undefined> | null : T;

/**
 * A message as a plain object, with all that is in it.
 *
 * @throws RangeError a number is above 2^53 - 1.
 */
export function plain<D extends DescMessage>(schema: D, message = create(schema)): Plain<MessageShape<D>> {
  const values = message as Readonly<Record<string, unknown>>;
  const entries = schema.fields.map((field) => {
    const value = values[field.localName];
    const one = (each: unknown): unknown => plainValue(each, field.message, field.enum);
    return [field.localName, field.fieldKind === "list" ? (value as unknown[]).map(one) : one(value)];
  });
  return Object.fromEntries(entries) as Plain<MessageShape<D>>;
}

function plainValue(value: unknown, schema: DescMessage | undefined, names: DescEnum | undefined): unknown {
  if (value === undefined) {
    return null;
  }
  if (typeof value === "bigint") {
    return number64(value);
  }
  if (names !== undefined) {
    return enumName(names, value as number);
  }
  return schema === undefined ? value : plain(schema, value as MessageShape<typeof schema>);
}

/** A value that this version does not know is "unspecified". */
function enumName(names: DescEnum, value: number): string {
  return names.value[value]?.localName.toLowerCase() ?? "unspecified";
}
