/** Starts, for all files of a project, the process that has the runtimes of the tests, and ends it. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import type { TestProject } from "vitest/node";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const PYTHON = process.env.KAKEYA_TEST_PYTHON ?? `${ROOT}.venv/bin/python`;
const STACKS: Readonly<Record<string, string[]>> = { contract: ["plain", "secured"], package: ["plain"] };

declare module "vitest" {
  interface ProvidedContext {
    /** Where that process listens, in a while. */
    stacks: string;
  }
}

export default async function (project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), "kakeya-"));
  const socket = join(folder, "socket");
  const helper = spawn(PYTHON, ["-m", "tests.typescript.stack", socket, ...(STACKS[project.name] ?? [])], {
    cwd: ROOT,
    stdio: ["pipe", "inherit", "inherit"],
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: "" },
  });
  const ended = once(helper, "exit");
  project.provide("stacks", socket);
  return async () => {
    helper.stdin.end();
    await ended;
    await rm(folder, { recursive: true });
  };
}
