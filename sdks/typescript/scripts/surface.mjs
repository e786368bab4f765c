// Prints what the package exports, as JSON: what scripts/sdk_parity.py holds beside the Python SDK.
//
//   { "classes": { name: { "members": { member: [parameter, ...] }, "status": ..., "reason": ... } },
//     "fields": { interface: [property, ...] }, "values": { union: [text, ...] }, "functions": { name: [parameter, ...] } }
//
// Of a parameter that is an object of options the options stand for it.

import { dirname, resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

import ts from "typescript";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const config = ts.parseJsonConfigFileContent(
  ts.readConfigFile(resolve(root, "tsconfig.json"), (file) => ts.sys.readFile(file)).config,
  ts.sys,
  root,
);
const entry = resolve(root, "src/index.ts");
const program = ts.createProgram([entry], config.options);
const checker = program.getTypeChecker();
const surface = { classes: {}, fields: {}, values: {}, functions: {} };

function parameters(signature) {
  return signature.getParameters().flatMap((parameter) => {
    const declaration = parameter.valueDeclaration;
    const isOptions = parameter.name === "options" || ts.isObjectBindingPattern(declaration.name);
    return isOptions ? properties(checker.getTypeOfSymbol(parameter)) : [parameter.name];
  });
}

function properties(type) {
  return checker.getPropertiesOfType(checker.getNonNullableType(type)).map((property) => property.name);
}

function isPublic(member) {
  const flags = ts.getCombinedModifierFlags(member.valueDeclaration ?? member.declarations[0]);
  const isInternal = member.getJsDocTags().some((tag) => tag.name === "internal");
  return (
    !(flags & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) && !isInternal && !/^(__|#)/.test(member.name)
  );
}

function describeClass(symbol) {
  const type = checker.getTypeOfSymbol(symbol);
  const own = checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(symbol));
  const statics = checker.getPropertiesOfType(type).filter((member) => member.name !== "prototype");
  const inherited = new Set(["captureStackTrace", "prepareStackTrace", "stackTraceLimit"]);
  const members = [...own, ...statics].filter((member) => isPublic(member) && !inherited.has(member.name));
  const found = Object.fromEntries(
    members.map((member) => {
      const [call] = checker.getTypeOfSymbol(member).getCallSignatures();
      return [member.name, call ? parameters(call) : []];
    }),
  );
  const [construct] = type.getConstructSignatures();
  return { members: found, constructor: construct ? parameters(construct) : [] };
}

for (const exported of checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(entry)))) {
  const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
  const type = checker.getDeclaredTypeOfSymbol(symbol);
  if (symbol.flags & ts.SymbolFlags.Class) {
    surface.classes[exported.name] = describeClass(symbol);
  } else if (symbol.flags & ts.SymbolFlags.Function) {
    surface.functions[exported.name] = parameters(checker.getTypeOfSymbol(symbol).getCallSignatures()[0]);
  } else if (type.isUnion() && type.types.every((each) => each.isStringLiteral())) {
    surface.values[exported.name] = type.types.map((each) => each.value);
  } else {
    surface.fields[exported.name] = properties(type);
  }
}
process.stdout.write(`${JSON.stringify(surface, null, 2)}\n`);
