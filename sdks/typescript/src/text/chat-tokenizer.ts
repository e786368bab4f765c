/** Prompts into ids by the model's chat template, ids into text. */

import { ChatTemplate, type Message, type Tools } from "./chat-template.js";
import { Detokenizer } from "./detokenizer.js";
import { PromptRefused } from "./errors.js";
import { eosTokenIds } from "./files.js";
import { leftOpen } from "./open-message.js";
import { peers, type Peers } from "./peers.js";
import type { Rendered } from "./stand-ins.js";
import { TextEncoder } from "./text-encoder.js";
import { TextTokenizer } from "./text-tokenizer.js";

/** How a tokenizer is loaded. */
export interface LoadOptions {
  /** Do without the chat template, as if there were none. */
  readonly isPlain?: boolean;
  /** Control tokens in the texts of a conversation are such; otherwise they are text. */
  readonly parsesTexts?: boolean;
}

/** What a conversation is rendered with. */
export interface PromptOptions {
  /** What the model may call. */
  readonly tools?: Tools;
  /** What else the chat template is told, e.g. `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>>;
  /**
   * Where it ends. "answer": behind the beginning of the model's next message, as `add_generation_prompt` has it;
   * "message": behind the last message; "text": behind the text of the last one, which the model goes on with, as
   * `continue_final_message` has it. Default "answer".
   */
  readonly end?: "answer" | "message" | "text";
}

/** How a text is encoded. */
export interface EncodeOptions {
  /** With the special ones that the tokenizer puts around a text. Default true. */
  readonly specialTokens?: boolean;
  /** Control tokens in it are such; otherwise they are text. Default true. */
  readonly parses?: boolean;
}

/**
 * A tokenizer, its chat template, and how a conversation begins and goes on by them.
 *
 * The ids are those of the Python SDK, by test. What a user, a tool or a model says is text in a conversation, also
 * where it spells `<|im_end|>`.
 */
export class ChatTokenizer {
  /** What ends an answer: the tokenizer's own, then those of generation_config.json or config.json. */
  readonly eosTokenIds: readonly number[];
  readonly #tokenizer: TextTokenizer;
  readonly #encoder: TextEncoder;
  readonly #template: ChatTemplate | undefined;
  readonly #toolTemplate: ChatTemplate | undefined;
  readonly #parsesTexts: boolean;

  private constructor(
    /** The directory. */
    readonly directory: string,
    { jinja, tokenizers }: Peers,
    { isPlain = false, parsesTexts = false }: LoadOptions,
  ) {
    this.#tokenizer = new TextTokenizer(tokenizers, directory);
    this.#encoder = new TextEncoder(this.#tokenizer);
    this.#parsesTexts = parsesTexts;
    const { specialTokens, templates } = this.#tokenizer.config;
    const named = (name: string): ChatTemplate | undefined => {
      const source = isPlain ? undefined : templates[name];
      const control = parsesTexts ? undefined : this.#tokenizer.control;
      return source ? new ChatTemplate(jinja, source, directory, specialTokens, control) : undefined;
    };
    this.#template = named("default");
    this.#toolTemplate = this.#template && (named("tool_use") ?? this.#template);
    const own = specialTokens.eos_token === undefined ? undefined : this.#tokenizer.id(specialTokens.eos_token);
    this.eosTokenIds = [...new Set([...(own === undefined ? [] : [own]), ...eosTokenIds(directory)])];
  }

  /**
   * @param directory - of a model, or of its tokenizer alone: tokenizer.json, tokenizer_config.json and, where there is
   * one, chat_template.jinja.
   *
   * @throws MissingExtra: `@huggingface/tokenizers` or `@huggingface/jinja` is not installed.
   * @throws TokenizerError: there is no such tokenizer, a file of it is broken, it is of a kind whose ids are not known
   * to be Python's, or its chat template does not write what is said.
   */
  static async load(directory: string, options: LoadOptions = {}): Promise<ChatTokenizer> {
    return new ChatTokenizer(directory, await peers(), options);
  }

  /** Whether prompts are rendered by a chat template, not sent as they are. */
  get hasTemplate(): boolean {
    return this.#template !== undefined;
  }

  /** The source of the chat template; "" where there is none. */
  get template(): string {
    return this.#template?.source ?? "";
  }

  /** Ids that it may make of a text are below this. */
  get numTokenIds(): number {
    return this.#tokenizer.numTokenIds;
  }

  /**
   * The tokens of a conversation whose next message will be the model's.
   *
   * @throws PromptRefused: the chat template refuses it, there is none, or a text holds half a character.
   * @throws TemplateStopped: the chat template does not come to an end.
   * @throws TokenizerError: the chat template fails on it.
   */
  prompt(messages: readonly Message[], options: PromptOptions = {}): number[] {
    return this.#encoder.rendered(this.#rendered(messages, options));
  }

  /** The text of such a conversation. Throws as `prompt` does. */
  render(messages: readonly Message[], options: PromptOptions = {}): string {
    return this.#rendered(messages, options).meant;
  }

  /**
   * The tokens of a whole text.
   *
   * @throws PromptRefused: the text holds half a character.
   */
  encode(text: string, { specialTokens = true, parses = true }: EncodeOptions = {}): number[] {
    if (/\p{Surrogate}/u.test(text)) {
      throw new PromptRefused("the text holds half a character");
    }
    return parses ? this.#tokenizer.encode(text, specialTokens) : this.#encoder.asText(text, specialTokens);
  }

  /** Text, without special tokens unless they are asked for. */
  decode(tokenIds: Iterable<number>, { specialTokens = false }: { readonly specialTokens?: boolean } = {}): string {
    return this.#tokenizer.decode([...tokenIds], specialTokens);
  }

  /** Decodes tokens as they come, in whole characters. */
  detokenizer(): Detokenizer {
    return new Detokenizer((tokenIds) => this.decode(tokenIds));
  }

  /**
   * The tokens that open a conversation.
   *
   * @throws TokenizerError: the chat template does not take it.
   */
  firstPrompt(text: string, system = ""): number[] {
    if (!this.hasTemplate) {
      return this.encode([system, text, ""].filter((part, index) => part || index === 2).join("\n"), {
        parses: this.#parsesTexts,
      });
    }
    return this.prompt(opening(text, system));
  }

  /**
   * The tokens between the model's answer and its next one: what a session that goes on is sent.
   *
   * @param text - what the user says.
   * @param lastTokenId - of the answer. An end-of-sequence token is in the history and not sent again; an answer that
   * was cut off gets the one it lacks.
   *
   * @throws TokenizerError: the chat template does not take the conversation, or leaves out what was said before.
   */
  nextPrompt(text: string, lastTokenId?: number): number[] {
    if (!this.#template) {
      return this.encode(`\n${text}\n`, { specialTokens: false, parses: this.#parsesTexts });
    }
    const prompt = this.#template.between(text);
    const end =
      lastTokenId !== undefined && this.eosTokenIds.includes(lastTokenId) ? this.#tokenizer.token(lastTokenId) : "";
    return this.#encoder.rendered(prompt.marked.startsWith(end) ? prompt.slice(end.length) : prompt);
  }

  #rendered(messages: readonly Message[], { tools, variables, end = "answer" }: PromptOptions): Rendered {
    const template = tools === undefined ? this.#template : this.#toolTemplate;
    if (!template) {
      throw new PromptRefused(`the tokenizer ${this.directory} has no chat template`);
    }
    const render = (each: readonly Message[]): Rendered =>
      template.render(each, { promptsAnswer: end === "answer", tools, variables });
    return end === "text" ? leftOpen(messages, render) : render(messages);
  }
}

function opening(text: string, system: string): Message[] {
  const said = { role: "user", content: text };
  return system ? [{ role: "system", content: system }, said] : [said];
}
