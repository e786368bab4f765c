/** A tokenizer's files: what is read of them, and what is said of those that cannot be. */

import { expect, test } from "vitest";

import { ChatTokenizer, MissingExtra, PromptRefused, TokenizerError } from "../../../src/text/index.js";
import { peers } from "../../../src/text/peers.js";
import { added, CHATML, directory, END, START, tiny, tokenizerJson } from "../../support/tokenizers.js";

const SAID = [{ role: "user", content: "hi" }];

async function refused(name: string): Promise<string> {
  const error: unknown = await ChatTokenizer.load(name).catch((each: unknown) => each);
  expect(error).toBeInstanceOf(TokenizerError);
  return (error as Error).message;
}

test("what is not there is named, with the cure", async () => {
  expect(await refused("/no/such/place")).toBe("/no/such/place is no directory");
  const empty = directory({});
  expect(await refused(empty)).toBe(`${empty} has no tokenizer.json`);
  const pieces = await refused(directory({ "tokenizer.model": "pieces" }));
  expect(pieces).toContain("has no tokenizer.json, only tokenizer.model; write one once");
  expect(pieces).toContain("AutoTokenizer");
});

test.each([
  ["tokenizer.json", "broken", "{", "tokenizer.json cannot be read: "],
  ["tokenizer.json", "a list", "[]", "tokenizer.json cannot be read: it is no JSON object"],
  [
    "tokenizer.json",
    "no list of added tokens",
    tokenizerJson({ added_tokens: {} }),
    "no tokenizer can be loaded from ",
  ],
  [
    "tokenizer.json",
    "a pattern that is none",
    tokenizerJson({ normalizer: { type: "Replace", pattern: { Regex: "(" } } }),
    "no tokenizer can be",
  ],
  [
    "config.json",
    "an end that is no id",
    { eos_token_id: "2" },
    'config.json cannot be read: eos_token_id is "2", neither a token id nor',
  ],
  [
    "tokenizer_config.json",
    "no token",
    { eos_token: { special: true } },
    'eos_token is {"special":true}, which is no token',
  ],
  ["tokenizer_config.json", "no template", { chat_template: 5 }, "its chat template is no text"],
])("%s, %s, is told in one line", async (file, _, content, message) => {
  expect(await refused(tiny(null, { [file]: content }))).toContain(message);
});

const { model } = tokenizerJson() as { model: object };

test.each([
  ["a model of the kind WordPiece", { model: { ...model, type: "WordPiece" } }],
  ["a model of the kind Unigram", { model: { type: "Unigram", vocab: [["a", 0]] } }],
  ["a model of the kind none", { model: null }],
  ["end_of_word_suffix", { model: { ...model, end_of_word_suffix: "</w>" } }],
  ["an added token of whole words only", { added_tokens: [added(256, "word", { single_word: true })] }],
  ["BertNormalizer", { normalizer: { type: "Sequence", normalizers: [{ type: "NFC" }, { type: "BertNormalizer" }] } }],
  ["WordPiece", { decoder: { type: "WordPiece" } }],
  ["BertProcessing", { post_processor: { type: "BertProcessing" } }],
  ["Whitespace", { pre_tokenizer: { type: "Whitespace" } }],
  ["ByteLevel with add_prefix_space", { pre_tokenizer: { type: "ByteLevel", add_prefix_space: true } }],
  [
    "Split with the behavior Contiguous",
    { pre_tokenizer: { type: "Split", pattern: { String: "." }, behavior: "Contiguous", invert: false } },
  ],
])("what may come to other ids than in Python is refused: %s", async (what, changes) => {
  const message = await refused(tiny(null, { "tokenizer.json": tokenizerJson(changes) }));
  expect(message).toContain(`cannot be used here: ${what} may come to other ids than it does in Python`);
});

test("a package that is not installed is named", async () => {
  const gone = (): Promise<never> => Promise.reject(new Error("Cannot find package"));
  const there = (): Promise<object> => Promise.resolve({});
  const error: unknown = await peers({ jinja: there, tokenizers: gone }).catch((each: unknown) => each);
  expect(error).toBeInstanceOf(MissingExtra);
  expect((error as Error).message).toContain(
    "a tokenizer needs a package; install it with: npm install @huggingface/tok",
  );
});

test("without a template, or asked to do without, there is none", async () => {
  const tokenizer = await ChatTokenizer.load(tiny(), { isPlain: true });
  expect([tokenizer.hasTemplate, tokenizer.template]).toEqual([false, ""]);
  expect(() => tokenizer.prompt(SAID)).toThrow(PromptRefused);
  expect(() => tokenizer.prompt(SAID)).toThrow("has no chat template");
  expect(tokenizer.decode(tokenizer.firstPrompt("hi", "be kind"))).toBe("be kind\nhi\n");
  expect(tokenizer.decode(tokenizer.firstPrompt("hi"))).toBe("hi\n");
  expect(tokenizer.decode(tokenizer.nextPrompt("hi", END))).toBe("\nhi\n");
  expect(tokenizer.firstPrompt("<|im_end|>")).not.toContain(END);
  const parsing = await ChatTokenizer.load(tiny(), { isPlain: true, parsesTexts: true });
  expect(parsing.firstPrompt("<|im_end|>")).toContain(END);
});

test("ends are those of the tokenizer, then of generation_config.json, else of config.json", async () => {
  const of = async (files: object): Promise<readonly number[]> =>
    (await ChatTokenizer.load(tiny(null, files as Record<string, unknown>))).eosTokenIds;
  expect(await of({})).toEqual([END]);
  expect(
    await of({ "generation_config.json": { eos_token_id: [END, 3] }, "config.json": { eos_token_id: 4 } }),
  ).toEqual([END, 3]);
  expect(await of({ "config.json": { text_config: { eos_token_id: [4, 400], vocab_size: 300 } } })).toEqual([END, 4]);
});

test("older files name what was added", async () => {
  const tokenizer = await ChatTokenizer.load(
    directory({
      "tokenizer.json": tokenizerJson({ added_tokens: [] }),
      "tokenizer_config.json": { chat_template: CHATML },
      "special_tokens_map.json": { bos_token: "<|im_start|>", eos_token: { content: "<|im_end|>" } },
      "added_tokens.json": { "<|im_start|>": START, "<|im_end|>": END },
    }),
  );
  expect([tokenizer.eosTokenIds, tokenizer.numTokenIds]).toEqual([[END], 258]);
  expect(tokenizer.prompt(SAID).filter((id) => id >= START)).toEqual([START, END, START]);
  expect(tokenizer.decode([START, 0x68, 0x69, 9_999])).toBe("hi");
});

test("tokens that are named beside, templates with names", async () => {
  const config = {
    extra_special_tokens: { image_token: "<image>", first_token: "!" },
    chat_template: { default: CHATML, tool_use: "{{ image_token }}{% for m in messages %}{{ m.content }}{% endfor %}" },
  };
  const named = await ChatTokenizer.load(tiny(null, { "tokenizer_config.json": config }));
  expect(named.render(SAID, { tools: [] })).toBe("<image>hi");
  expect(named.encode("<image>!", { specialTokens: false })).toEqual([258, 0x21]); // which was learned
  const files = { "additional_chat_templates/tool_use.jinja": "{{ messages[0].content }}!" };
  const beside = await ChatTokenizer.load(tiny(CHATML, files));
  expect(beside.render(SAID, { tools: [] })).toBe("hi!");
  const list = { additional_special_tokens: ["<image>"], chat_template: [{ name: "default", template: CHATML }] };
  const listed = await ChatTokenizer.load(tiny(null, { "tokenizer_config.json": list }));
  expect(listed.encode("<image>")).toEqual([258]);
  expect(listed.hasTemplate).toBe(true);
});
