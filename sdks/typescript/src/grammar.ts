/** What an answer can be held to, and what it may think before. */

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import * as wire from "./_generated/kakeya/v1/runtime_pb.js";
import { fill, tokenList, type TokenIds } from "./transport/fields.js";

/**
 * Made by one of its static methods; at most 256 KiB.
 *
 * What cannot be used is an `InvalidField` of the generation, which says why.
 */
export class Grammar {
  /** @internal */
  readonly wire: wire.Grammar;

  /** @internal */
  constructor(kind: NonNullable<MessageInitShape<typeof wire.GrammarSchema>["kind"]>) {
    this.wire = create(wire.GrammarSchema, { kind });
  }

  /** Any JSON object. */
  static jsonObject(): Grammar {
    return Grammar.jsonSchema({ type: "object" });
  }

  /**
   * JSON that a JSON Schema accepts.
   *
   * @param schema - itself, or its text.
   */
  static jsonSchema(schema: object | boolean | string): Grammar {
    const text = typeof schema === "string" ? schema : JSON.stringify(schema);
    return new Grammar({ case: "jsonSchema", value: text });
  }

  /** A text that matches a regular expression as a whole, in the syntax of Rust's crate regex. */
  static regex(pattern: string): Grammar {
    return new Grammar({ case: "regex", value: pattern });
  }

  /** One of these texts. */
  static choice(texts: Iterable<string>): Grammar {
    return new Grammar({ case: "choice", value: { texts: [...texts] } });
  }

  /** A grammar in llguidance's form of Lark. */
  static lark(grammar: string): Grammar {
    return new Grammar({ case: "lark", value: grammar });
  }
}

/** Parts of a thought. */
export interface ReasoningOptions {
  /** The thought ends with these, in this order; 1 to 16. */
  readonly endTokenIds: TokenIds;
  /** An answer that does not begin with these tokens has no thought; none: it begins within it. */
  readonly beginTokenIds?: TokenIds;
  /** Of the generation, after which the end of the thought is all that may come; 0: no bound. */
  readonly maxTokens?: number;
}

/** How a model thinks before it answers: a grammar begins behind that. */
export class Reasoning {
  /** @internal */
  readonly wire: wire.Reasoning;

  /**
   * @throws InvalidField, TokenOutOfVocabulary: a value does not fit its field.
   */
  constructor({ endTokenIds, beginTokenIds = [], maxTokens = 0 }: ReasoningOptions) {
    const marks = {
      endTokenIds: tokenList(endTokenIds, "end_token_ids"),
      beginTokenIds: tokenList(beginTokenIds, "begin_token_ids"),
    };
    this.wire = fill(wire.ReasoningSchema, create(wire.ReasoningSchema, marks), { maxTokens });
  }
}
