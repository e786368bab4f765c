/**
 * The library's interpreter, with what it does otherwise than Jinja put right, within bounds, for texts with stand-ins.
 *
 * All of it comes by `evaluate`, the one method that the library's interpreter calls at each node of a template's tree.
 */

import type { StandIns } from "../stand-ins.js";
import { bare, FILTERS, inOrder, JSON_NAMES, listed, NOT_KNOWN, OF_LISTS } from "./arguments.js";
import type { Giving } from "./given.js";
import {
  isList,
  isMapping,
  isText,
  isUndefined,
  type Interpreter,
  type Jinja,
  type Node,
  type Scope,
  type Value,
} from "./jinja.js";
import {
  known,
  type Binary,
  type Filter,
  type KeywordArgument,
  type Known,
  type Loop,
  type Member,
  type Printed,
  type Test,
} from "./nodes.js";
import { Numeral, numeralIn } from "./numeral.js";
import type { Printing } from "./printing.js";
import type { Strings } from "./strings.js";

/** A template went beyond its bounds; the message says which. */
export class OverBudget extends Error {}

/** What a rendering is made with. */
export interface Tools {
  readonly giving: Giving;
  readonly printing: Printing;
  readonly strings: Strings;
  readonly standIns: StandIns | undefined;
  /** Of processor time: on a busy machine, too, far more than any conversation takes. */
  readonly maxSeconds: number;
  readonly maxLetters: number;
}

const LOGICAL = ["and", "or"];
const STEPS_A_LOOK = 256;

/** The class, once the library is there. */
export function interpreterOf(jinja: Jinja): new (scope: Scope, tools: Tools) => Interpreter {
  return class extends jinja.Interpreter {
    #steps = 0;
    readonly #began = process.cpuUsage();

    constructor(
      scope: Scope,
      private readonly tools: Tools,
    ) {
      super(scope);
    }

    override evaluate(node: Node | undefined, scope: Scope): Value {
      this.#steps += 1;
      const { maxSeconds, maxLetters } = this.tools;
      if (this.#steps % STEPS_A_LOOK === 0 && this.#seconds() > maxSeconds) {
        throw new OverBudget(`it takes more than ${maxSeconds} s of processor time`);
      }
      const value = this.#evaluated(node, scope);
      if (isText(value) && value.value.length > maxLetters) {
        throw new OverBudget(`it makes a text of more than ${maxLetters} letters`);
      }
      return value;
    }

    #seconds(): number {
      const { user, system } = process.cpuUsage(this.#began);
      return (user + system) / 1e6;
    }

    #evaluated(node: Node | undefined, scope: Scope): Value {
      switch (node?.type) {
        case "Known":
          return (node as Known).known;
        case "Printed":
          return this.#text(this.tools.printing.shown(this.evaluate((node as Printed).expression, scope)));
        case "BinaryExpression":
          return this.#binary(node as Binary, scope);
        case "MemberExpression":
          return this.#member(node as Member, scope);
        case "FilterExpression":
          return this.#filter(node as Filter, scope);
        case "TestExpression":
          if (NOT_KNOWN.includes((node as Test).test.value)) {
            throw new Error(`the test ${(node as Test).test.value} is not known here`);
          }
          return super.evaluate(node, scope);
        case "For":
          return this.#loop(node as Loop, scope);
        default:
          return super.evaluate(node, scope);
      }
    }

    #binary(node: Binary, scope: Scope): Value {
      const operator = node.operator.value;
      if (LOGICAL.includes(operator)) {
        return super.evaluate(node, scope);
      }
      const left = this.evaluate(node.left, scope);
      const right = this.evaluate(node.right, scope);
      const { printing, giving } = this.tools;
      switch (operator) {
        case "==":
        case "!=":
          return giving.plain(printing.equal(left, right) === (operator === "=="));
        case "in":
        case "not in":
          return giving.plain(this.#holds(right, left) === (operator === "in"));
        case "%":
          return isText(left)
            ? this.#text(printing.formatted(left, isList(right) ? right.value : [right]))
            : this.#counted(node, left, right, scope);
        case "~":
          return this.#text(printing.shown(left) + printing.shown(right));
        default:
          return this.#counted(node, left, right, scope);
      }
    }

    #counted(node: Binary, left: Value, right: Value, scope: Scope): Value {
      const both: Binary = { ...node, left: known(left), right: known(right) };
      return super.evaluate(both, scope);
    }

    #holds(whole: Value, wanted: Value): boolean {
      if (isText(whole) && isText(wanted)) {
        return this.tools.strings.meant(whole.value).includes(this.tools.strings.meant(wanted.value));
      }
      if (isList(whole)) {
        return whole.value.some((each) => this.tools.printing.equal(each, wanted));
      }
      if (isMapping(whole)) {
        return isText(wanted) && this.#named(whole.value, wanted.value) !== undefined;
      }
      if (isUndefined(whole)) {
        return false;
      }
      throw new Error(`argument of type '${whole.type}' is not iterable`);
    }

    #member(node: Member, scope: Scope): Value {
      const object = this.evaluate(node.object, scope);
      if (isUndefined(object)) {
        throw new Error("a value is undefined of which a part is asked for");
      }
      const isSlice = node.property.type === "SliceExpression";
      const property = node.computed && !isSlice ? this.evaluate(node.property, scope) : undefined;
      const name = property ? (isText(property) ? property.value : undefined) : node.property.value;
      if (isText(object) && typeof name === "string" && this.tools.strings.has(name)) {
        return this.#method(object.value, name);
      }
      if (isText(object) && property?.type === "IntegerValue") {
        const letter = Array.from(object.value).at(property.value as number);
        return letter === undefined ? this.tools.giving.plain(undefined) : this.#text(letter);
      }
      const other: Member = { ...node, object: known(object), ...(property && { property: known(property) }) };
      const found = isMapping(object) && typeof name === "string" ? this.#named(object.value, name) : undefined;
      return found ?? super.evaluate(other, scope);
    }

    /** By a name that is marked, or not. */
    #named(mapping: ReadonlyMap<string, Value>, name: string): Value | undefined {
      const { standIns, strings } = this.tools;
      const meant = strings.meant(name);
      return mapping.get(meant) ?? (standIns && mapping.get(standIns.mark(meant)));
    }

    #method(text: string, name: string): Value {
      return this.tools.giving.plain((...given: unknown[]) => this.#called(text, name, inOrder(given)));
    }

    #called(text: string, name: string, given: readonly unknown[]): unknown {
      const { strings } = this.tools;
      return strings.has(name) ? strings.call(name, text, given) : undefined;
    }

    #filter(node: Filter, scope: Scope): Value {
      const operand = this.evaluate(node.operand, scope);
      const { filter } = node;
      const name = filter.callee?.value ?? filter.value;
      const { giving, printing, strings } = this.tools;
      const [method, ...names] = FILTERS[name] ?? [];
      if (method !== undefined) {
        const text = printing.shown(operand);
        return giving.plain(
          this.#called(
            text,
            method,
            this.#arguments(filter.args, scope, names).map((each) => bare(each?.value)),
          ),
        );
      }
      switch (name) {
        case "tojson":
          return this.#text(this.#json(operand, this.#arguments(filter.args, scope, JSON_NAMES)));
        case "string":
          return this.#text(printing.shown(operand));
        case "format":
          return this.#text(printing.formatted(operand, this.#all(filter.args, scope)));
        case "join": {
          const [by] = this.#arguments(filter.args, scope, ["d"]);
          const items = listed(operand, giving).map((each) => printing.shown(each));
          return this.#text(items.join(by ? printing.shown(by) : ""));
        }
      }
      if (OF_LISTS.includes(name) && (isUndefined(operand) || operand.type === "NullValue")) {
        return giving.list([]);
      }
      if (isText(operand)) {
        switch (name) {
          case "length":
          case "count":
            return giving.plain(Array.from(operand.value).length);
          case "list":
            return giving.list(listed(operand, giving));
          case "int":
          case "float":
            return this.#number(strings.meant(operand.value), name === "int", filter.args, scope);
        }
      }
      if (NOT_KNOWN.includes(name)) {
        throw new Error(`the filter ${name} is not known here`);
      }
      const other: Filter = { ...node, operand: known(operand) };
      return super.evaluate(other, scope);
    }

    /** Of a filter, in the order of their names; undefined where one is left out. */
    #arguments(args: readonly Node[] = [], scope: Scope, names: readonly string[]): (Value | undefined)[] {
      const positional = args.filter((each) => each.type !== "KeywordArgumentExpression");
      const keywords = args.filter((each): each is KeywordArgument => each.type === "KeywordArgumentExpression");
      return names.map((name, index) => {
        const given = positional[index] ?? keywords.find((each) => each.key.value === name)?.value;
        return given && this.evaluate(given, scope);
      });
    }

    #number(text: string, isWhole: boolean, args: readonly Node[] | undefined, scope: Scope): Value {
      const { giving } = this.tools;
      const numeral = numeralIn(text, isWhole);
      const [other] = numeral ? [] : this.#arguments(args, scope, ["default"]);
      return other ?? giving.value(numeral ?? new Numeral(isWhole ? "0" : "0.0"));
    }

    #all(args: readonly Node[] = [], scope: Scope): Value[] {
      return args.map((each) => this.evaluate(each, scope));
    }

    #json(value: Value, [ascii, indent, separators, sorts]: readonly (Value | undefined)[]): string {
      const [itemSeparator, nameSeparator] =
        separators && isList(separators) ? separators.value.map(({ value: text }) => text) : [];
      const json = this.tools.printing.json(value, {
        indent: typeof indent?.value === "number" ? indent.value : undefined,
        itemSeparator: itemSeparator as string | undefined,
        nameSeparator: nameSeparator as string | undefined,
        sortsNames: sorts?.value === true,
      });
      return ascii?.value === true ? this.tools.printing.escaped(json) : json;
    }

    #loop(node: Loop, scope: Scope): Value {
      const { iterable } = node;
      const items = this.evaluate(iterable.lhs ?? iterable, scope);
      const list = known(this.tools.giving.list(listed(items, this.tools.giving)));
      const other: Loop = { ...node, iterable: iterable.lhs ? { ...iterable, lhs: list } : list };
      return super.evaluate(other, scope);
    }

    #text(text: string): Value {
      return this.tools.giving.plain(text);
    }
  };
}
