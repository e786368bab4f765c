/**
 * Text and tokens: for programs that speak with a model in words.
 *
 * It needs `@huggingface/tokenizers` and `@huggingface/jinja`, which are optional peers of the package.
 *
 * @packageDocumentation
 */

export { MissingExtra } from "../errors.js";
export type { Message, Tools } from "./chat-template.js";
export { ChatTokenizer, type EncodeOptions, type LoadOptions, type PromptOptions } from "./chat-tokenizer.js";
export { Detokenizer } from "./detokenizer.js";
export { PromptRefused, TemplateStopped, TokenizerError } from "./errors.js";
