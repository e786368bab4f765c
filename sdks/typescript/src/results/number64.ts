/**
 * A length or a number of bytes as the contract has it, in 64 bits.
 *
 * @throws RangeError it is above 2^53 - 1, and no number of JavaScript is exact there.
 */
export function number64(value: bigint): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number)) {
    throw new RangeError(`${value} is above 2^53 - 1, and not exact as a number`);
  }
  return number;
}
