/** Text from tokens as they come, in whole characters. */

/** What decoders make of a byte that is none of a whole character. */
const UNFINISHED = /\ufffd*$/;
/** Tokens that may hold the beginning of one character: it has four bytes at most, and a token has one at least. */
const MOST_UNFINISHED = 3;

/**
 * Gives out text once its last character is whole, or can no longer become so.
 *
 * A decoder looks at a token's neighbours (spaces, bytes of one character), so each token is decoded together with the
 * ones since the last whole character and, as context, the ones before that. Both are a few tokens, however long the
 * text gets.
 */
export class Detokenizer {
  readonly #decode: (tokenIds: number[]) => string;
  /** Given out entirely. */
  #context: number[] = [];
  #pending: number[] = [];
  /** Of both. */
  #text = "";
  /** Code units of it that were given out. */
  #numGiven = 0;

  /**
   * @param decode - text of a list of token ids.
   */
  constructor(decode: (tokenIds: number[]) => string) {
    this.#decode = decode;
  }

  /** The text that is certain now; "" in the middle of a character. */
  push(tokenId: number): string {
    const before = this.#text;
    this.#text = this.#decode([...this.#context, ...this.#pending, tokenId]);
    if (this.#text === before && this.#decode([tokenId, tokenId]) === "") {
      return ""; // it has no text wherever it stands, as special tokens have none: not kept
    }
    this.#pending.push(tokenId);
    let text = this.#give(numUnfinished(this.#text));
    if (this.#numGiven === this.#text.length) {
      this.#goOnAfter(this.#pending);
    } else if (this.#pending.length > MOST_UNFINISHED) {
      text += this.#giveUpOldest();
    }
    return text;
  }

  /** What is left: replacement characters, if the tokens ended within a character. */
  flush(): string {
    return this.#text.slice(this.#numGiven);
  }

  /** The text but for its last letters, as far as it was not given out yet. */
  #give(numKept: number): string {
    const start = this.#numGiven;
    this.#numGiven = Math.max(start, this.#text.length - numKept);
    return this.#text.slice(start, this.#numGiven);
  }

  /** The text up to what the latest tokens may still make whole: what the oldest one began will never be. */
  #giveUpOldest(): string {
    const latest = this.#pending.slice(-MOST_UNFINISHED);
    const text = this.#give(Math.min(numUnfinished(this.#text), numUnfinished(this.#decode(latest))));
    const numLeft = this.#text.length - this.#numGiven; // less than could be kept where a part was given out before
    if (numLeft === 0) {
      this.#goOnAfter(latest);
      return text;
    }
    this.#context = [];
    this.#pending = latest;
    this.#text = this.#decode(latest);
    this.#numGiven = this.#text.length - numLeft;
    return text;
  }

  /** Keeps tokens that were given out entirely, as context of the next. */
  #goOnAfter(tokenIds: number[]): void {
    this.#context = tokenIds;
    this.#pending = [];
    this.#text = this.#decode(tokenIds);
    this.#numGiven = this.#text.length;
  }
}

/** Replacement characters at its end. */
function numUnfinished(text: string): number {
  return UNFINISHED.exec(text)?.[0].length ?? 0;
}
