/** Tokenizers that a test writes: an id for each byte, and what marks a message. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

import { onTestFinished } from "vitest";

/** GPT-2's letters for the 256 bytes. */
const LETTERS = Array.from({ length: 256 }, (_, byte) => byte).map((byte, _, all) => {
  const isShown = (code: number): boolean => (code > 0x20 && code < 0x7f) || (code > 0xa0 && code !== 0xad);
  return isShown(byte) ? byte : 0x100 + all.slice(0, byte).filter((other) => !isShown(other)).length;
});

export const START = 256;
export const END = 257;
export const CHATML =
  "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" +
  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

export function added(id: number, content: string, fields: object = {}): object {
  const flags = { special: true, normalized: false, lstrip: false, rstrip: false, single_word: false };
  return { id, content, ...flags, ...fields };
}

/** What a tokenizer.json holds. */
export function tokenizerJson(changes: object = {}): Record<string, unknown> {
  const vocab = Object.fromEntries(LETTERS.map((code, byte) => [String.fromCharCode(code), byte]));
  return {
    added_tokens: [added(START, "<|im_start|>"), added(END, "<|im_end|>")],
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, use_regex: false },
    post_processor: null,
    decoder: { type: "ByteLevel" },
    model: { type: "BPE", vocab, merges: [] },
    ...changes,
  };
}

/** A directory with these files, for as long as the test runs: texts as they are, all else as JSON. */
export function directory(files: Readonly<Record<string, unknown>>): string {
  const made = mkdtempSync(join(tmpdir(), "kakeya-tokenizer-"));
  onTestFinished(() => {
    rmSync(made, { recursive: true });
  });
  write(made, files);
  return made;
}

/** Writes them into a directory. */
export function write(made: string, files: Readonly<Record<string, unknown>>): void {
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(made, name)), { recursive: true });
    writeFileSync(join(made, name), typeof content === "string" ? content : JSON.stringify(content));
  }
}

/** The files of one with a chat template. */
export function tinyFiles(template: string | null = CHATML): Record<string, unknown> {
  const config = { eos_token: "<|im_end|>", bos_token: "<|im_start|>" };
  const files = { "tokenizer.json": tokenizerJson(), "tokenizer_config.json": config };
  return template ? { "chat_template.jinja": template, ...files } : files;
}

/** A directory of these. */
export function tiny(template: string | null = CHATML, files: Readonly<Record<string, unknown>> = {}): string {
  return directory({ ...tinyFiles(template), ...files });
}
