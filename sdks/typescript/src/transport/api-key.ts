/** The key that a client shows the runtime. */

import { readFileSync } from "node:fs";

const VARIABLE = "KAKEYA_API_KEY";
// What fits an HTTP/2 header as it is. gRPC would refuse the rest as well, in an error that shows the key.
const SENDABLE = /^[!-~]+$/;

/** A key that is kept out of sight: no log of it, nor an error, shows it. */
export class ApiKey {
  readonly #secret: string;

  /**
   * @throws RangeError it has characters that no key has; the message says so without them.
   */
  constructor(secret: string, source = "apiKey") {
    if (!SENDABLE.test(secret)) {
      throw new RangeError(`${source}: has blanks, line ends or characters outside ASCII, which no key has`);
    }
    this.#secret = secret;
  }

  /** What goes with each call as `authorization`. */
  get authorization(): string {
    return `Bearer ${this.#secret}`;
  }
}

/**
 * The key of a client; undefined for none.
 *
 * @param apiKey - undefined takes the file, "" is no key whatever else is set.
 * @param file - its blanks at both ends do not count; undefined takes $KAKEYA_API_KEY.
 * @throws RangeError as `ApiKey`, and where the file is empty. What reading the file throws.
 */
export function chooseKey(apiKey?: string, file?: string, environment = process.env): ApiKey | undefined {
  if (apiKey !== undefined) {
    return apiKey === "" ? undefined : new ApiKey(apiKey);
  }
  if (file !== undefined) {
    return new ApiKey(readFileSync(file, "utf8").trim(), file);
  }
  const secret = environment[VARIABLE];
  return secret ? new ApiKey(secret, `$${VARIABLE}`) : undefined;
}
