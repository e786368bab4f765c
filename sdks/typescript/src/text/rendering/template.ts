/** A chat template, ready to be rendered within its bounds. */

import type { Control } from "../control-tokens.js";
import { Rendered, StandIns } from "../stand-ins.js";
import { strftime } from "./clock.js";
import { Giving, texts } from "./given.js";
import { interpreterOf, OverBudget, type Tools } from "./interpreter.js";
import type { Interpreter, Jinja, Node, Scope } from "./jinja.js";
import { withPrinted } from "./nodes.js";
import { Printing } from "./printing.js";
import { Strings } from "./strings.js";

export { OverBudget } from "./interpreter.js";

const MAX_SECONDS = 2;
const MAX_LETTERS = 1 << 22;
const LETTERS_FOR_A_GIVEN_ONE = 8;
const MAX_SOURCE_LETTERS = 1 << 17;
const MAX_RANGE = 1 << 18;

/** By `raise_exception`: the template refuses what it is given, on purpose. */
export class Raised extends Error {}

export class Template {
  readonly #source: string;
  readonly #program: Node;
  readonly #jinja: Jinja;
  readonly #interpreter: new (scope: Scope, tools: Tools) => Interpreter;

  /**
   * @throws OverBudget, and what the library does where it is no template.
   */
  constructor(jinja: Jinja, source: string) {
    if (source.length > MAX_SOURCE_LETTERS) {
      throw new OverBudget(`it has more than ${MAX_SOURCE_LETTERS} letters itself`);
    }
    this.#source = source;
    this.#jinja = jinja;
    this.#interpreter = interpreterOf(jinja);
    this.#program = withPrinted(jinja.parse(jinja.tokenize(source, { lstrip_blocks: true, trim_blocks: true })));
  }

  /**
   * What the template writes; with stand-ins for the letters that came from texts, where one of these is suspicious.
   *
   * @param variables - what it is told, as it is.
   * @param given - what it is told of a conversation.
   * @param at - the time that it is told.
   *
   * @throws OverBudget, Raised, PromptRefused; whatever the template throws.
   */
  render(variables: object, given: object, control: Control | undefined, at: Date): Rendered {
    const found = texts(given);
    const letters = control?.lettersOn(found);
    const standIns = letters && new StandIns(letters, [this.#source, ...texts(variables), ...found]);
    const numGiven = found.reduce((sum, text) => sum + text.length, 0);
    const scope = new this.#jinja.Environment();
    setGlobals(scope, at);
    const told = new Giving(this.#jinja, undefined);
    for (const [name, value] of Object.entries(variables)) {
      scope.setVariable(name, told.value(value));
    }
    const giving = new Giving(this.#jinja, standIns);
    for (const [name, value] of Object.entries(given)) {
      scope.setVariable(name, giving.value(value));
    }
    const tools: Tools = {
      giving,
      standIns,
      printing: new Printing(standIns),
      strings: new Strings(standIns),
      maxSeconds: MAX_SECONDS,
      maxLetters: MAX_LETTERS + LETTERS_FOR_A_GIVEN_ONE * numGiven,
    };
    return new Rendered(new this.#interpreter(scope, tools).run(this.#program).toString(), standIns);
  }
}

function setGlobals(scope: Scope, at: Date): void {
  for (const [name, value] of [
    ["true", true],
    ["false", false],
    ["none", null],
  ] as const) {
    scope.set(name, value);
    scope.set(name.charAt(0).toUpperCase() + name.slice(1), value);
  }
  scope.set("raise_exception", (message: unknown) => {
    throw new Raised(String(message));
  });
  scope.set("strftime_now", (form: unknown) => strftime(at, String(form)));
  scope.set("range", range);
}

function range(first: number, stop?: number, step = 1): number[] {
  const [start, end] = stop === undefined ? [0, first] : [first, stop];
  const length = Math.max(0, Math.ceil((end - start) / step));
  if (!(length <= MAX_RANGE)) {
    throw new OverBudget(`it makes a list of more than ${MAX_RANGE} items`);
  }
  return Array.from({ length }, (_, index) => start + index * step);
}
