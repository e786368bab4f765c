/** Nodes of a template's tree, as far as they are looked into here. */

import type { Node, Value } from "./jinja.js";

/** A node that is what it came to already. */
export interface Known extends Node {
  readonly type: "Known";
  readonly known: Value;
}

/** Such a node. */
export const known = (value: Value): Known => ({ type: "Known", known: value });

export interface Binary extends Node {
  readonly operator: { readonly value: string };
  readonly left: Node;
  readonly right: Node;
}

export interface Member extends Node {
  readonly object: Node;
  readonly property: Node & { readonly value?: unknown };
  readonly computed: boolean;
}

export interface Filter extends Node {
  readonly operand: Node;
  readonly filter: Node & {
    readonly value: string;
    readonly callee?: { readonly value: string };
    readonly args?: readonly Node[];
  };
}

export interface Test extends Node {
  readonly test: { readonly value: string };
}

export interface KeywordArgument extends Node {
  readonly key: { readonly value: string };
  readonly value: Node;
}

export interface Loop extends Node {
  readonly iterable: Node & { readonly lhs?: Node };
}

/** An expression whose value is written. */
export interface Printed extends Node {
  readonly expression: Node;
}

/** What holds nodes one after another. */
const BODIES = ["body", "alternate", "defaultBlock"];
const STATEMENTS = new Set([
  "Set",
  "If",
  "For",
  "Macro",
  "CallStatement",
  "FilterStatement",
  "Break",
  "Continue",
  "Comment",
]);

/** Has what is written printed as Python does; the library does that its own way, and by no method. */
export function withPrinted(node: Node): Node {
  const fields = node as unknown as Record<string, unknown>;
  for (const name of BODIES) {
    const body = fields[name];
    if (Array.isArray(body)) {
      fields[name] = (body as Node[]).map((each) => (STATEMENTS.has(each.type) ? withPrinted(each) : printed(each)));
    }
  }
  return node;
}

/** Still one of the library's nodes: it looks for what a macro's body asks for. */
function printed(expression: Node): Node {
  const made = Object.create(Object.getPrototypeOf(expression) as object) as Node;
  return Object.assign(made, { type: "Printed", expression });
}
