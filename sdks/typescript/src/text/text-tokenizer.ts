/** Texts into ids and back, by `@huggingface/tokenizers`, with what the files beside a tokenizer say. */

import { ControlTokens } from "./control-tokens.js";
import { TokenizerError } from "./errors.js";
import { readTokenizer, type Json } from "./files.js";
import { mended, withoutFirst } from "./mending.js";
import type { Tokenizer, Tokenizers } from "./peers.js";
import { loadConfig, type AddedToken, type TokenizerConfig } from "./tokenizer-config.js";

/** In English, blanks that some tokenizers put in front of what follows; the order matters. */
const CLEANED = [
  [" .", "."],
  [" ?", "?"],
  [" !", "!"],
  [" ,", ","],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
] as const;

export class TextTokenizer {
  readonly added: readonly AddedToken[];
  readonly config: TokenizerConfig;
  readonly control: ControlTokens;
  readonly #whole: Tokenizer;
  /** Without control tokens, once one is needed; and the same for a text behind another. */
  readonly #plain: [Tokenizer?, Tokenizer?] = [];
  readonly #file: Json;
  readonly #tokenizers: Tokenizers;

  /**
   * @param name - whose, for errors.
   * @throws TokenizerError: there is no such tokenizer, a file of it is broken, or it is of another kind.
   */
  constructor(tokenizers: Tokenizers, name: string) {
    const file = mended(name, readTokenizer(name));
    this.config = loadConfig(name);
    this.#tokenizers = tokenizers;
    try {
      this.added = withAdded(file, this.config);
      this.#file = { ...file, added_tokens: this.added };
      this.#whole = this.#made(this.#file);
      this.decode(this.encode("a b", true), false);
    } catch (error) {
      throw new TokenizerError(`no tokenizer can be loaded from ${name}: ${(error as Error).message}`, error);
    }
    const { normalizer } = this.#whole;
    this.control = new ControlTokens(this.added, normalizer ? (text) => normalizer.normalize(text) : undefined);
  }

  /** Ids that it may make of a text are below this. */
  get numTokenIds(): number {
    const { vocab } = this.#file.model as { vocab: Readonly<Record<string, number>> };
    return Math.max(...this.added.map(({ id }) => id), Object.keys(vocab).length - 1) + 1;
  }

  /** A text whose control tokens are such; with those that the tokenizer puts around a text where they are asked for. */
  encode(text: string, specialTokens = false): number[] {
    return this.#whole.encode(text, { add_special_tokens: specialTokens }).ids;
  }

  /** A text without control tokens, whatever it spells; but for what leads from a token's letters to its id. */
  encodePlain(text: string, goesOn: boolean): number[] {
    const at = goesOn ? 1 : 0;
    this.#plain[at] ??= this.#made({
      ...this.#file,
      added_tokens: this.added.filter(({ id }) => !this.control.contents.has(id)),
      pre_tokenizer: goesOn ? withoutFirst(this.#file.pre_tokenizer) : this.#file.pre_tokenizer,
    });
    return this.#plain[at].encode(text, { add_special_tokens: false }).ids;
  }

  /** Text; with special tokens only where they are asked for. */
  decode(tokenIds: readonly number[], specialTokens: boolean): string {
    const known = tokenIds.filter((id) => this.#whole.id_to_token(id) !== undefined);
    if (known.length === 0) {
      return "";
    }
    const text = this.#whole.decode(known, { skip_special_tokens: !specialTokens });
    return this.config.cleansUp ? CLEANED.reduce((made, [blank, clean]) => made.replaceAll(blank, clean), text) : text;
  }

  /** The token as the vocabulary writes it; "" where none has that id. */
  token(tokenId: number): string {
    return this.#whole.id_to_token(tokenId) ?? "";
  }

  /** Undefined where none is written so. */
  id(token: string): number | undefined {
    return this.#whole.token_to_id(token);
  }

  #made(file: Json): Tokenizer {
    return new this.#tokenizers.Tokenizer(file, { clean_up_tokenization_spaces: false });
  }
}

/** Those of tokenizer.json, and those that only the files beside it name. */
function withAdded(file: Json, config: TokenizerConfig): AddedToken[] {
  const added = [...((file.added_tokens ?? []) as AddedToken[])];
  const known = new Set(added.map(({ content }) => content));
  const { vocab } = file.model as { vocab: Readonly<Record<string, number>> };
  let next = Math.max(Object.keys(vocab).length, ...added.map(({ id }) => id + 1));
  for (const token of config.addedTokens) {
    if (!known.has(token.content) && token.content !== "") {
      known.add(token.content);
      const learned = Object.hasOwn(vocab, token.content) ? vocab[token.content] : undefined;
      added.push({ ...token, id: learned ?? next });
      next += learned === undefined ? 1 : 0;
    }
  }
  return added;
}
