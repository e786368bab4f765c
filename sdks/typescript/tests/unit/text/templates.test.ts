/** Chat templates: in which form they take what, what they may not do, and how what they write reads. */

import { afterEach, expect, test, vi } from "vitest";

import {
  ChatTokenizer,
  PromptRefused,
  TemplateStopped,
  TokenizerError,
  type Message,
} from "../../../src/text/index.js";
import { float, number } from "../../../src/text/rendering/numeral.js";
import { tiny } from "../../support/tokenizers.js";

const EACH = "{% for m in messages %}{{ m.content }}{% endfor %}";
const SAID = [{ role: "user", content: "hi" }];

const load = (source: string): Promise<ChatTokenizer> => ChatTokenizer.load(tiny(source));

/** What an expression of a template comes to. */
async function made(expression: string, variables: Record<string, unknown> = {}): Promise<string> {
  const tokenizer = await load(`${EACH}{% if go %}{{ ${expression} }}{% endif %}`);
  return tokenizer.render(SAID, { variables: { go: true, ...variables } }).slice("hi".length);
}

afterEach(() => {
  vi.useRealTimers();
});

const PART = "{% for p in m.content %}{{ p.text }}{% endfor %}";

test.each([
  ["texts", EACH, "ab"],
  ["parts", `{% for m in messages %}{% if m.content is not string %}${PART}{% endif %}{% endfor %}`, "ab"],
  ["one part", "{% for m in messages %}{{ m.content[0].text }}{% endfor %}", "ab"],
  ["a system first", `{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}${EACH}`, "ab"],
])("contents are given as the template takes them: %s", async (name, source, expected) => {
  const tokenizer = await load(source);
  const contents = ["ab", ["a", "b"].map((text) => ({ type: "text", text }))];
  const system = name === "a system first" ? [{ role: "system", content: "" }] : [];
  for (const content of contents) {
    expect(tokenizer.render([...system, { role: "user", content }])).toBe(expected);
  }
  if (name === "parts") {
    expect(tokenizer.render([{ role: "user", content: [] }])).toBe("");
  }
});

const CALL = "{% for c in m.tool_calls or [] if c is mapping %}{{ c.function.arguments | tojson }}{% endfor %}";
const called = (fields: object): Message => ({ role: "assistant", content: "", ...fields });
const calling = (text: string, id?: string): Message =>
  called({ tool_calls: [{ id, type: "function", function: { name: "f", arguments: text } }, "odd"] });

test("arguments are given as objects where they are such, with their numbers as they were written", async () => {
  const tokenizer = await load(`{% for m in messages %}{{ m.content }}${CALL}{% endfor %}`);
  const written = (text: string): string => tokenizer.render([{ role: "user", content: "" }, calling(text)]);
  expect(written('{"a": 1.0, "b": [1e5, -1e-7, 12345678901234567890], "c": {"d": 1}}')).toBe(
    '{"a": 1.0, "b": [100000.0, -1e-07, 12345678901234567890], "c": {"d": 1}}',
  );
  for (const text of [
    "no json",
    "[1]",
    '{"a": 1, "a": 2}',
    '{"a": 1e999}',
    `{"a": ${"[".repeat(70)}${"]".repeat(70)}}`,
  ]) {
    expect(written(text)).toBe(JSON.stringify(text));
  }
});

test("calls are told in other forms, too", async () => {
  const source = `{% for m in messages %}{{ m.content }}${CALL}{{ m.function_call.arguments.a if m.function_call }}{% endfor %}`;
  const tokenizer = await load(source);
  expect(tokenizer.render([called({ content: "x", function_call: { arguments: '{"a": "b"}' } })])).toBe("xb");
});

test("ids of calls are nine letters and digits where the template refuses others", async () => {
  const check = "{% if m.tool_call_id and m.tool_call_id | length != 9 %}{{ raise_exception('nine!') }}{% endif %}";
  const tokenizer = await load(`{% for m in messages %}${check}{{ m.content }}{{ m.tool_call_id }};{% endfor %}`);
  const used = (id: string): string =>
    tokenizer.render([...SAID, calling("{}", id), { role: "tool", content: "r", tool_call_id: id }]);
  expect(used("abcdefghi")).toContain("rabcdefghi;");
  expect(used("call_12")).toMatch(/r[0-9a-f]{9};$/);
  expect(used("call_12")).toBe(used("call_12"));
});

test("what fails is told in one line, with whose it is", async () => {
  await expect(load("{% if %}")).rejects.toThrow(TokenizerError);
  await expect(load("{# nothing #}")).rejects.toThrow("neither given as a text nor as parts (it is left out)");
  await expect(load("{{ nobody.knows }}")).rejects.toThrow("a value is undefined of which a part is asked for");
  await expect(load("{{ raise_exception('not for chats') }}")).rejects.toThrow(
    "refuses messages of user: not for chats",
  );
  const tokenizer = await load(`${EACH}{% if bad %}{{ raise_exception('never') }}{% endif %}`);
  const render = (): string => tokenizer.render(SAID, { variables: { bad: true } });
  expect(render).toThrow(PromptRefused);
  expect(render).toThrow("the chat template refuses messages of user: never");
  expect(() => tokenizer.render([])).toThrow("there are no messages");
  expect(() => tokenizer.render([], { end: "text" })).toThrow("there are no messages");
});

test("what comes to no end is stopped", async () => {
  const loop = "{% for a in range(9999) %}{% for b in range(9999) %}{{ a ~ b }}{% endfor %}{% endfor %}";
  const long = "{% set ns = namespace(t='xxxxxxxx') %}{% for a in range(99) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}";
  const stopped = async (source: string): Promise<TemplateStopped> => {
    const error: unknown = await load(source).catch((each: unknown) => each);
    expect(error).toBeInstanceOf(TemplateStopped);
    return error as TemplateStopped;
  };
  expect((await stopped(loop)).message).toContain("was stopped: it takes more than 2 s of processor time");
  expect((await stopped(long)).reason).toMatch(/it makes a text of more than \d+ letters/);
  expect((await stopped("{% for a in range(0, 999999999, 2) %}{% endfor %}")).reason).toContain("a list of more than");
  expect((await stopped(EACH + " ".repeat(1 << 17))).reason).toContain("letters itself");
  const later = await load(`${EACH}{% if go %}${loop}{% endif %}`);
  expect(() => later.render(SAID, { variables: { go: true } })).toThrow(TemplateStopped);
  expect(later.render(SAID)).toBe("hi"); // others go on
});

test("a conversation that goes on is told what is new in it, or that it cannot go on", async () => {
  const last = await load("{{ messages[-1].content }}");
  expect(() => last.nextPrompt("hi")).toThrow("leaves out what was said before");
  const users = await load("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}");
  expect(() => users.nextPrompt("hi")).toThrow("leaves out what was said before");
  const backwards = await load("{% for m in messages[::-1] %}{{ m.content }}{% endfor %}");
  expect(() => backwards.nextPrompt("hi")).toThrow("leaves out what was said before");
  const all = await load("{% for m in messages %}[{{ m.content }}]{% endfor %}");
  expect(all.decode(all.nextPrompt("hi"))).toBe("][hi]");
});

test("the last message may be left open", async () => {
  const tokenizer = await load("{% for m in messages %}<{{ m.content }}>{% endfor %}");
  const open = (content: unknown): string => tokenizer.render([{ role: "assistant", content }], { end: "text" });
  expect(open("It is ")).toBe("<It is ");
  expect(open([{ type: "image" }, { type: "text", text: "It" }])).toContain("It");
  expect(() => open([{ type: "image" }])).toThrow("the last message has no text to go on with");
  expect(() => open(5)).toThrow("the last message has no text to go on with");
  const silent = await load("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}");
  expect(() => silent.render([called({ content: "x" })], { end: "text" })).toThrow("leaves out the text");
  const trimming = await load("{% for m in messages %}<{{ m.content | trim }}>{% endfor %}");
  expect(trimming.render([called({ content: "x  " })], { end: "text" })).toBe("<x");
});

test("values are printed and compared as in Python", async () => {
  const value = { a: [1, 2.5, null, true], "it's": "\n\u00a0\u{10ffff}", b: {} };
  expect(await made("v", { v: value })).toBe(`{'a': [1, 2.5, None, True], "it's": '\\n\\xa0\\U0010ffff', 'b': {}}`);
  expect(await made("[(1, 2), range, none, nothing]")).toBe("[(1, 2), <FunctionValue>, None, ]");
  expect(await made("v is none", { v: undefined })).toBe("False");
  expect(await made("v", { v: () => 1 })).toBe("<function>");
  expect(await made("[1, 'a', {'b': [1.0]}] == [true, 'a', {'b': [1]}]")).toBe("True");
  expect(await made("{'a': 1} == {'b': 1}")).toBe("False");
  expect(await made("1 == '1'")).toBe("False");
  expect(await made("none == nothing")).toBe("False");
  expect(await made("'a' in nothing")).toBe("False");
  await expect(made("'a' in 5")).rejects.toThrow("argument of type 'IntegerValue' is not iterable");
  expect(await made("'%s%%: %d' % ('a', 5)")).toBe("a%: 5");
  expect(await made("'%s' % 'a'")).toBe("a");
  expect(await made("7 % 4")).toBe("3");
  await expect(made("'%x' % 5")).rejects.toThrow("%x is no directive");
  await expect(made("'%s%s' % 'a'")).rejects.toThrow("not enough arguments");
  expect(await made("' 12'|int + '1.5'|float + 'x'|int(3) + 'x'|float")).toBe("16.5");
  expect(await made("{'b': 1, 'a': [2]}|tojson(sort_keys=true, indent=2)")).toBe(
    '{\n  "a": [\n    2\n  ],\n  "b": 1\n}',
  );
  expect(await made("[1, {}]|tojson(separators=(',', ':'))")).toBe("[1,{}]");
  await expect(made("range|tojson")).rejects.toThrow("is not JSON serializable");
  await expect(made("5|join")).rejects.toThrow("'IntegerValue' object is not iterable");
  expect(await made("{'a': 1}|join")).toBe("a");
  expect(await made("'aéa'[1]")).toBe("é");
  expect(await made("'a b c'.split(maxsplit=1)")).toBe("['a', 'b c']");
  expect(await made("'abc'.replace('', '-', count=2)")).toBe("-a-bc");
  await expect(made("'a'.replace(1, 2)")).rejects.toThrow("replace() takes two texts");
  await expect(made("'a'.split('')")).rejects.toThrow("empty separator");
  await expect(made("','.join([1])")).rejects.toThrow("join() takes texts");
  for (const unknown of ["'a'|title", "'a' is lower"]) {
    await expect(made(unknown)).rejects.toThrow("is not known here");
  }
});

test("numbers are written as in Python", () => {
  expect([1e21, -0, 5].map(number)).toEqual(["1000000000000000000000", "0", "5"]);
  expect([NaN, Infinity, -Infinity, -0, 5, 1e16, 1e15, 0.0001, 0.00001, 123456.5].map(float)).toEqual([
    ...["nan", "inf", "-inf", "-0.0", "5.0", "1e+16", "1000000000000000.0", "0.0001", "1e-05", "123456.5"],
  ]);
  expect([0.00012345, -0.001].map(float)).toEqual(["0.00012345", "-0.001"]);
});

test("the time is told in English", async () => {
  vi.useFakeTimers({ toFake: ["Date"], now: new Date(2026, 0, 5, 15, 4, 9) });
  const form = "%a %A %b %B %d %-d %H %I %j %m %M %p %S %y %Y%Z %% %Q";
  expect(await made(`strftime_now('${form}')`)).toBe("Mon Monday Jan January 05 5 15 03 005 01 04 PM 09 26 2026 % %Q");
  vi.setSystemTime(new Date(2026, 11, 31, 0));
  expect(await made("strftime_now('%I %p %j')")).toBe("12 AM 365");
});
