/**
 * What the Python SDK makes of texts and conversations, this one does.
 *
 * A slice of it in each run, all of it by `make test-typescript-text`: 5,000 texts of many scripts by kakeya-nano, SmolLM2
 * and tokenizers in the ways of six families, and conversations by the templates of fourteen.
 */

import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { afterAll, beforeAll, expect, test, vi } from "vitest";

import { ChatTemplate } from "../../src/text/chat-template.js";
import { ChatTokenizer, TokenizerError, type Message, type PromptOptions } from "../../src/text/index.js";
import { peers } from "../../src/text/peers.js";
import { TextTokenizer } from "../../src/text/text-tokenizer.js";

interface Texts {
  readonly directory: string;
  readonly texts: string[];
  readonly eos_token_ids: number[];
  readonly num_token_ids: number;
  readonly ids: number[][];
  readonly bare_ids: number[][];
  readonly as_text: number[][];
  readonly prompts: number[][];
  readonly decoded: string[];
  readonly cut: string[];
  readonly pieces: string[][];
}

interface Case {
  readonly messages: Message[];
  readonly told: PromptOptions;
  readonly rendered?: string;
  readonly ids?: number[];
  readonly error?: string;
}

interface Next {
  readonly text: string;
  readonly last_token_id: number | null;
  readonly first?: number[];
  readonly next?: number[];
  readonly error?: string;
}

interface Expression {
  readonly expression: string;
  readonly source: string;
  readonly pairs: [string, string][];
  readonly made: (string | null)[];
}

interface Cases {
  readonly expressions: Expression[];
  readonly now: number;
  readonly tokenizers: Record<string, Texts>;
  readonly templates: Record<string, { directory: string; cases: Case[]; goes_on: Next[] }>;
}

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const PYTHON = process.env.KAKEYA_TEST_PYTHON ?? `${ROOT}.venv/bin/python`;
const { KAKEYA_TEST_TEXTS: number, KAKEYA_TEST_SMOLLM2: smollm2 } = process.env;
/** Of all texts by one tokenizer, on a machine that is busy. */
const PATIENT = 900_000;
const NUM_TEXTS = Number(number ?? 100);
const directory = mkdtempSync(join(tmpdir(), "kakeya-texts-"));
const asked = [...(number ? [] : ["--slice"]), ...(smollm2 ? ["--smollm2", smollm2] : [])];
const wanted = ["-m", "tests.typescript.texts", directory, "--number", String(NUM_TEXTS), ...asked];
await promisify(execFile)(PYTHON, wanted, { cwd: ROOT });
const cases = JSON.parse(readFileSync(join(directory, "cases.json"), "utf8")) as Cases;

beforeAll(() => {
  vi.useFakeTimers({ toFake: ["Date"], now: cases.now * 1000 }); // some templates tell the day
});

afterAll(() => {
  vi.useRealTimers();
  rmSync(directory, { recursive: true });
});

/** The first that differ, with what they were made of. */
function different<T, Made>(
  given: readonly T[],
  expected: readonly Made[],
  make: (each: T, index: number) => Made,
): unknown[] {
  expect(expected.length).toBeGreaterThan(0);
  return expected
    .map((made, index) => ({ of: given[index] as T, expected: made, made: make(given[index] as T, index) }))
    .filter((each) => JSON.stringify(each.expected) !== JSON.stringify(each.made))
    .slice(0, 3);
}

test.each(Object.entries(cases.tokenizers))(
  "%s: ids and texts are Python's",
  async (_, expected) => {
    const tokenizer = await ChatTokenizer.load(expected.directory);
    const { texts, ids } = expected;
    expect(texts).toHaveLength(NUM_TEXTS);
    expect(tokenizer.eosTokenIds).toEqual(expected.eos_token_ids);
    expect(tokenizer.numTokenIds).toBe(expected.num_token_ids);
    expect(different(texts, ids, (text) => tokenizer.encode(text))).toEqual([]);
    expect(different(texts, expected.bare_ids, (text) => tokenizer.encode(text, { specialTokens: false }))).toEqual([]);
    expect(different(texts, expected.as_text, (text) => tokenizer.encode(text, { parses: false }))).toEqual([]);
    const prompt = (text: string): number[] => tokenizer.prompt([{ role: "user", content: text }]);
    expect(different(texts, expected.prompts, prompt)).toEqual([]);
    expect(different(ids, expected.decoded, (each) => tokenizer.decode(each, { specialTokens: true }))).toEqual([]);
    const cut = ids.map((each) => each.slice(Math.floor(each.length / 3), -1));
    expect(different(cut, expected.cut, (each) => tokenizer.decode(each))).toEqual([]);
    const streamed = different(cut, expected.pieces, (each) => {
      const detokenizer = tokenizer.detokenizer();
      return [...each.map((id) => detokenizer.push(id)), detokenizer.flush()];
    });
    expect(streamed).toEqual([]);
  },
  PATIENT,
);

/** What it makes, or by which error it says that it cannot. */
function told<T>(make: () => T): T | string {
  try {
    return make();
  } catch (error) {
    expect(error).toBeInstanceOf(TokenizerError);
    return (error as Error).name;
  }
}

test.each(Object.entries(cases.templates))("%s: conversations are Python's", async (_, expected) => {
  const tokenizer = await ChatTokenizer.load(expected.directory);
  const rendered = expected.cases.map((each) => each.rendered ?? each.error);
  expect(
    different(expected.cases, rendered, ({ messages, told: options }) =>
      told(() => tokenizer.render(messages, options)),
    ),
  ).toEqual([]);
  const ids = expected.cases.map((each) => each.ids ?? each.error);
  expect(
    different(expected.cases, ids, ({ messages, told: options }) => told(() => tokenizer.prompt(messages, options))),
  ).toEqual([]);
  expect(expected.cases.filter((each) => each.ids).length).toBeGreaterThan(expected.cases.length / 3);
  const first = expected.goes_on.map((each) => each.first ?? each.error);
  expect(different(expected.goes_on, first, ({ text }) => told(() => tokenizer.firstPrompt(text)))).toEqual([]);
  const next = expected.goes_on.map((each) => each.next ?? each.error);
  const last = (each: Next): number | undefined => each.last_token_id ?? undefined;
  expect(different(expected.goes_on, next, (each) => told(() => tokenizer.nextPrompt(each.text, last(each))))).toEqual(
    [],
  );
});

/** Python has them, and here they are an error. */
const NOT_KNOWN = [
  ...["swapcase()", "casefold()", "index('')", "center(20)", "zfill(12)", "ljust(9)", "format()", "format_map({})"],
  ...["isupper()", "islower()", "isalpha()", "isalnum()", "istitle()", "isnumeric()", "isdecimal()", "isidentifier()"],
  ...["isprintable()", "isascii()"],
].map((method) => `c.${method}`);
NOT_KNOWN.push(
  ...[
    "reverse",
    "first",
    "last",
    "center(40)",
    "truncate(5)",
    "wordcount",
    "e",
    "urlencode",
    "striptags",
    "pprint",
  ].map((filter) => `c|${filter}`),
  ...[
    "c|title",
    "c|indent",
    "c|unique|list",
    "c|sort|join",
    "[c,d]|sort",
    "{c:d}|dictsort",
    "c|batch(3)|list",
    "c|wordwrap(7)",
    "c|forceescape",
  ],
  ...["[d,c]|min", "[c,d]|max", "c<d", "c>=d", "c*2", "2*c", "'{}{}'.format(c,d)", "'{0:>30}'.format(c)"],
  ...["c is lower", "c is upper", "c|map('upper')|list", "[{'x':c}]|selectattr('x','equalto',d)|list"],
  ...["[c,d]|groupby(0)", "dict(x=c)"],
);
/** Pairs are printed as lists. */
const OTHERWISE = /^c\.r?partition|\|items\|list$/;

test.each(cases.expressions)("$expression: what is made of texts is Python's, marked or not", async (each) => {
  const { jinja, tokenizers } = await peers();
  const { control } = new TextTokenizer(tokenizers, cases.tokenizers.nano?.directory ?? "");
  for (const marks of [undefined, control]) {
    const template = new ChatTemplate(jinja, each.source, "it", {}, marks);
    const made = each.pairs.map((pair) => {
      const messages = pair.map((content) => ({ role: "user", content }));
      const text = told(() => template.render(messages, { promptsAnswer: true }).meant);
      return text === "TokenizerError" ? null : text;
    });
    if (NOT_KNOWN.includes(each.expression)) {
      expect(made).toEqual(made.map(() => null));
    } else if (!OTHERWISE.test(each.expression)) {
      expect(made).toEqual(each.made);
    }
  }
});

test("there are ten families", () => {
  expect(Object.keys(cases.templates).length).toBeGreaterThanOrEqual(10);
});

test("a tokenizer whose ids are not known to be Python's is refused", async () => {
  await expect(ChatTokenizer.load(join(directory, "unigram"))).rejects.toThrow(
    "a model of the kind Unigram may come to other ids than it does in Python",
  );
});
