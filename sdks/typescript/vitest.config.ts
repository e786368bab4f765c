import { defineConfig } from "vitest/config";

// What is imported, and the runtimes of real processes, serve all files of a project, one after the other. Units have a pool
// of another kind, which runs beside the other projects': those wait, at first for their runtimes to start.
const TOGETHER = {
  isolate: false,
  poolOptions: { forks: { singleFork: true }, threads: { singleThread: true } },
};

export default defineConfig({
  test: {
    projects: [
      { extends: true, test: { name: "unit", include: ["tests/unit/**/*.test.ts"], pool: "threads", ...TOGETHER } },
      { extends: true, test: { name: "text", include: ["tests/text/**/*.test.ts"], ...TOGETHER } },
      {
        extends: true,
        test: {
          name: "contract",
          include: ["tests/contract/**/*.test.ts"],
          globalSetup: "tests/support/stacks.ts",
          ...TOGETHER,
        },
      },
      {
        extends: true,
        test: { name: "package", include: ["tests/package/**/*.test.ts"], globalSetup: "tests/support/stacks.ts" },
      },
    ],
    maxConcurrency: 8, // of those that say so: they wait for the runtime, whose steps are of many rows
    // What no machine takes, however busy.
    testTimeout: 120_000,
    hookTimeout: 240_000,
    coverage: {
      provider: "v8",
      include: ["src/**"],
      exclude: ["src/_generated/**"],
      thresholds: { lines: 100 },
      reporter: [["text", { skipFull: true }]],
    },
  },
});
