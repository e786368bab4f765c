import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    projects: [
      { extends: true, test: { name: "unit", include: ["tests/unit/**/*.test.ts"] } },
      {
        extends: true,
        test: {
          name: "contract",
          include: ["tests/contract/**/*.test.ts"],
          // One runtime of real processes for all files.
          isolate: false,
          poolOptions: { forks: { singleFork: true } },
        },
      },
      { extends: true, test: { name: "package", include: ["tests/package/**/*.test.ts"] } },
    ],
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
