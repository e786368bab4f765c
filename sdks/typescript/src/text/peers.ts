/** The packages that texts need, which only who works with texts installs. */

import { MissingExtra } from "../errors.js";
import type { Jinja } from "./rendering/jinja.js";

/** What is used of `@huggingface/tokenizers`. */
export interface Tokenizers {
  readonly Tokenizer: new (tokenizer: object, config: object) => Tokenizer;
}

/** One of its tokenizers. */
export interface Tokenizer {
  readonly normalizer: { normalize(text: string): string } | null;
  encode(text: string, options: { add_special_tokens: boolean }): { readonly ids: number[] };
  decode(tokenIds: number[], options: { skip_special_tokens: boolean }): string;
  token_to_id(token: string): number | undefined;
  id_to_token(id: number): string | undefined;
}

/** Each in the folder of its own that it came in. */
export interface Peers {
  readonly jinja: Jinja;
  readonly tokenizers: Tokenizers;
}

const IMPORTS = {
  jinja: () => import("@huggingface/jinja"),
  tokenizers: () => import("@huggingface/tokenizers"),
} as const;

/**
 * @throws MissingExtra: one is not installed.
 */
export async function peers(imports: Record<keyof Peers, () => Promise<unknown>> = IMPORTS): Promise<Peers> {
  return {
    jinja: (await imported("a chat template", "@huggingface/jinja", imports.jinja)) as Jinja,
    tokenizers: (await imported("a tokenizer", "@huggingface/tokenizers", imports.tokenizers)) as Tokenizers,
  };
}

async function imported(feature: string, name: string, load: () => Promise<unknown>): Promise<unknown> {
  try {
    return await load();
  } catch (error) {
    throw new MissingExtra(feature, name, error);
  }
}
