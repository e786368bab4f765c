/** What `npm pack` makes, installed into an empty folder: README's examples compile strictly and run there. */

import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { beforeAll, expect, test } from "vitest";

import { tinyFiles, write } from "../support/tokenizers.js";
import { plainStack } from "../support/stack.js";

const PACKAGE = fileURLToPath(new URL("../../", import.meta.url));
const MAX_BYTES = 300_000;
const folder = mkdtempSync(join(tmpdir(), "kakeya-package-"));
const examples = [...readFileSync(join(PACKAGE, "README.md"), "utf8").matchAll(/^```ts\n(.*?)^```/gms)].map(
  ([, code = ""]) => code,
);
const WITHOUT_PEERS =
  'require("@kakeya/sdk/text").ChatTokenizer.load(".").catch((error) => console.log(error.message))';
const OPTIONS = {
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  target: "es2022",
  lib: ["es2022", "esnext.disposable", "dom"],
  module: "nodenext",
  typeRoots: [join(PACKAGE, "node_modules/@types")],
  types: ["node"],
};

async function run(program: string, ...words: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(program, words, { cwd: folder });
  return stdout;
}

beforeAll(async () => {
  await promisify(execFile)("npm", ["run", "build"], { cwd: PACKAGE });
  await promisify(execFile)("npm", ["pack", "--pack-destination", folder], { cwd: PACKAGE });
  const [archive = ""] = readdirSync(folder);
  expect(statSync(join(folder, archive)).size).toBeLessThan(MAX_BYTES);
  writeFileSync(join(folder, "package.json"), "{}");
  await run("npm", "install", "--no-audit", "--no-fund", archive);
  expect(await run("node", "-e", WITHOUT_PEERS)).toContain("npm install @huggingface/");
  cpSync(join(PACKAGE, "node_modules/@huggingface"), join(folder, "node_modules/@huggingface"), { recursive: true });
  write(join(folder, "models/smollm2"), tinyFiles());
  const { address } = await plainStack();
  examples.forEach((code, number) => {
    writeFileSync(join(folder, `example-${number}.mts`), code.replaceAll("localhost:50051", address));
  });
  for (const file of ["types.mts", "types.cts"]) {
    writeFileSync(join(folder, file), readFileSync(join(PACKAGE, "tests/package/types.mts")));
  }
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: OPTIONS }));
  await run(join(PACKAGE, "node_modules/.bin/tsc"), "-p", ".").catch((error: unknown) => {
    throw new Error((error as { stdout: string }).stdout);
  });
});

test("its types resolve wherever it is imported or required", async () => {
  await promisify(execFile)("npm", ["run", "package"], { cwd: PACKAGE }).catch((error: unknown) => {
    throw new Error((error as { stdout: string }).stdout);
  });
});

test.each(examples.map((code, number) => [number, code] as const))("README's example %i runs", async (number, code) => {
  if (code.includes("runtime.example.com")) {
    expect(number).toBe(examples.length - 1); // of a place that is not: it compiles
    return;
  }
  expect(await run("node", `example-${number}.mjs`)).not.toBe("");
});

test("it is there for require, too, and needs nothing that it does not declare", async () => {
  const names = await run("node", "-p", 'Object.keys(require("@kakeya/sdk")).sort().join()');
  const modules = await run(
    "node",
    "--input-type=module",
    "-e",
    'console.log(Object.keys(await import("@kakeya/sdk")).sort().join())',
  );
  expect(names).toBe(modules);
  const texts = await run("node", "-p", 'Object.keys(require("@kakeya/sdk/text")).sort().join()');
  expect(texts.trim()).toBe("ChatTokenizer,Detokenizer,MissingExtra,PromptRefused,TemplateStopped,TokenizerError");
  expect(names).toContain("AbortError,Admin,AppendTooLong");
  await expect(run("node", "-p", 'require("@opentelemetry/api")')).rejects.toThrow("Cannot find module");
  const asked =
    'new (require("@kakeya/sdk").Client)("h:1", { tracing: true }).listModels().catch((e) => console.log(e.message))';
  expect(await run("node", "-e", asked)).toContain("npm install @opentelemetry/api");
});
