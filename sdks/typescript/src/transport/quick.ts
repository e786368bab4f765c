/**
 * Messages that come by the thousand, a token and nothing else, read without a schema: that costs a tenth.
 *
 * Whatever else is in one, the schema reads.
 */

import type { DescMessage, Message } from "@bufbuild/protobuf";

import {
  GenerateResponseSchema,
  TurnResponseSchema,
  type GenerateResponse,
  type TurnResponse,
} from "../_generated/kakeya/v1/runtime_pb.js";

/** `token_id = 1`, a varint. */
const TOKEN = 0x08;
/** `generated = 3`, a message of so many bytes. */
const GENERATED = 0x1a;

/** What reads them, by the schema of all; undefined where there is more in one. */
export const QUICK: ReadonlyMap<DescMessage, (bytes: Uint8Array) => Message | undefined> = new Map<
  DescMessage,
  (bytes: Uint8Array) => Message | undefined
>([
  [GenerateResponseSchema, (bytes) => token(bytes, 0)],
  [TurnResponseSchema, generatedToken],
]);

function generatedToken(bytes: Uint8Array): TurnResponse | undefined {
  const value = bytes[0] === GENERATED && bytes[1] === bytes.length - 2 ? token(bytes, 2) : undefined;
  return value && { $typeName: "kakeya.v1.TurnResponse", event: { case: "generated", value } };
}

/** From `start` to the end there is one token id, in at most five groups of seven bits, the lowest first. */
function token(bytes: Uint8Array, start: number): GenerateResponse | undefined {
  const last = bytes.length - 1;
  if (bytes[start] !== TOKEN || last === start || last > start + 5) {
    return undefined;
  }
  let value = 0;
  for (let index = last; index > start; index -= 1) {
    const group = bytes[index] ?? 0;
    if (group < 0x80 !== (index === last)) {
      return undefined;
    }
    value = value * 0x80 + (group & 0x7f);
  }
  return value < 2 ** 32 ? { $typeName: "kakeya.v1.GenerateResponse", payload: { case: "tokenId", value } } : undefined;
}
