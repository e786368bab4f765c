import { defineConfig } from "tsdown";

export default defineConfig({
  entry: { index: "src/index.ts", text: "src/text/index.ts" },
  format: ["esm", "cjs"],
  platform: "node",
  target: "node20",
  fixedExtension: true,
  dts: true,
  clean: true,
});
