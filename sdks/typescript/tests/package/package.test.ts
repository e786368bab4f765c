/** What `npm pack` makes, installed into an empty folder: README's examples compile strictly and run there. */

import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { beforeAll, expect, onTestFinished, test } from "vitest";

import type { Client as Clients } from "../../src/index.js";

import { tinyFiles, write } from "../support/tokenizers.js";
import { eventually, plainStack } from "../support/stack.js";

const PACKAGE = fileURLToPath(new URL("../../", import.meta.url));
const MAX_BYTES = 300_000;
const folder = mkdtempSync(join(tmpdir(), "kakeya-package-"));
const examples = [...readFileSync(join(PACKAGE, "README.md"), "utf8").matchAll(/^```ts\n(.*?)^```/gms)].map(
  ([, code = ""]) => code,
);
const WITHOUT_PEERS =
  'require("@kakeya/sdk/text").ChatTokenizer.load(".").catch((error) => console.log(error.message))';
const EXAMPLES = ["chat.mjs", "server.mjs"];
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
  await compiled("tsconfig.json");
  for (const file of EXAMPLES) {
    writeFileSync(join(folder, file), readFileSync(join(PACKAGE, "examples", file)));
  }
});

async function compiled(config: string): Promise<void> {
  await run(join(PACKAGE, "node_modules/.bin/tsc"), "-p", config).catch((error: unknown) => {
    throw new Error((error as { stdout: string }).stdout);
  });
}

test("its documentation is made without a warning", async () => {
  await promisify(execFile)("npm", ["run", "docs"], { cwd: PACKAGE }).catch((error: unknown) => {
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

/** An example that runs, and all that it has written. */
async function started(...words: string[]): Promise<{ process: ChildProcess; written: () => string }> {
  const { address } = await plainStack();
  const env = { ...process.env, KAKEYA_ADDRESS: address, MAX_TOKENS: "50000" };
  const child = spawn("node", words, { cwd: folder, env, stdio: ["pipe", "pipe", "inherit"] });
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  let written = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    written += text;
  });
  return { process: child, written: () => written };
}

/** Session of an example, and how long its history is; undefined where it has none. */
async function session(label: string): Promise<number | undefined> {
  const { Client } = (await import(join(folder, "node_modules/@kakeya/sdk/dist/index.mjs"))) as {
    Client: typeof Clients;
  };
  await using client = new Client((await plainStack()).address);
  for await (const each of client.listSessions()) {
    if (each.label === label) {
      return each.historyLength;
    }
  }
  return undefined;
}

/** Once it stays the same. */
async function settled(label: string): Promise<number> {
  let length = -1;
  await eventually(async () => {
    const before = length;
    length = (await session(label)) ?? -1;
    await new Promise((resolve) => setTimeout(resolve, 200));
    return length > 0 && length === before;
  }, "the answer has stopped");
  return length;
}

test("the examples are what their types say", async () => {
  const compilerOptions = { ...OPTIONS, allowJs: true, checkJs: true, noEmit: true, skipLibCheck: true };
  writeFileSync(join(folder, "examples.json"), JSON.stringify({ compilerOptions, files: EXAMPLES }));
  await compiled("examples.json");
});

test("a chat in the terminal: what interrupts an answer leaves the session", async () => {
  const chat = await started("chat.mjs", "models/smollm2");
  chat.process.stdin?.write("Hello!\n");
  await eventually(() => chat.written().length > 10, "an answer begins");
  chat.process.kill("SIGINT");
  await eventually(() => chat.written().includes(" [stopped]\n> "), "it has stopped");
  const length = await settled("chat.mjs");
  expect(length).toBeLessThan(50_000);
  chat.process.stdin?.write("And now?\n");
  await eventually(async () => ((await session("chat.mjs")) ?? 0) > length, "the session goes on");
  chat.process.kill("SIGINT");
  await eventually(() => chat.written().split(" [stopped]\n> ").length === 3, "it has stopped again");
  chat.process.kill("SIGINT");
  expect(await once(chat.process, "exit")).toEqual([0, null]);
  expect(await session("chat.mjs")).toBeUndefined();
});

test("a web server: who leaves stops the answer", async () => {
  const server = await started("server.mjs", "models/smollm2", "0");
  await eventually(() => server.written().includes("http://127.0.0.1:"), "it listens");
  const url = server.written().trim();
  expect(await (await fetch(url)).text()).toContain("<title>Kakeya</title>");
  expect((await fetch(`${url}/answer`, { method: "POST", body: "Hi" })).status).toBe(404); // without its header
  const leaving = new AbortController();
  const ask = (signal?: AbortSignal): Promise<Response> =>
    fetch(`${url}/answer`, {
      method: "POST",
      body: "Hello!",
      headers: { conversation: "mine" },
      signal: signal ?? null,
    });
  const answer = await ask(leaving.signal);
  const reader = answer.body?.getReader();
  expect(await reader?.read()).toMatchObject({ done: false });
  expect((await ask()).status).toBe(409);
  leaving.abort();
  const length = await settled("server.mjs");
  expect(length).toBeLessThan(50_000);
  const again = new AbortController();
  await eventually(async () => (await ask(again.signal)).status === 200, "the page may ask again");
  await eventually(async () => ((await session("server.mjs")) ?? 0) > length, "its session goes on");
  again.abort();
  server.process.kill("SIGTERM");
  expect(await once(server.process, "exit")).toEqual([0, null]);
  expect(await session("server.mjs")).toBeUndefined();
});
