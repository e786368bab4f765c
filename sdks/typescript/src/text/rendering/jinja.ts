/** What is used of `@huggingface/jinja`, whose types name none of its values. */

/** A value of a template. */
export interface Value {
  readonly type: string;
  readonly value: unknown;
  toString(): string;
}

/** A text. */
export interface TextValue extends Value {
  readonly type: "StringValue";
  readonly value: string;
}

/** A node of a template's tree; what else it has depends on its type. */
export interface Node {
  readonly type: string;
}

/** The names that a part of a template sees. */
export interface Scope {
  readonly variables: Map<string, Value>;
  set(name: string, value: unknown): Value;
  setVariable(name: string, value: Value): Value;
}

/** Goes through a tree, and comes by `evaluate` at each node of it. */
export interface Interpreter {
  run(program: Node): Value;
  evaluate(node: Node | undefined, scope: Scope): Value;
}

/** The library. */
export interface Jinja {
  readonly Environment: new () => Scope;
  readonly Interpreter: new (scope: Scope) => Interpreter;
  tokenize(source: string, options: { lstrip_blocks: boolean; trim_blocks: boolean }): unknown;
  parse(tokens: unknown): Node;
}

export function isText(value: Value): value is TextValue {
  return value.type === "StringValue";
}

export function isList(value: Value): value is Value & { readonly value: readonly Value[] } {
  return value.type === "ArrayValue" || value.type === "TupleValue";
}

export function isMapping(value: Value): value is Value & { readonly value: ReadonlyMap<string, Value> } {
  return value.type === "ObjectValue";
}

export function isUndefined(value: Value): boolean {
  return value.type === "UndefinedValue";
}
