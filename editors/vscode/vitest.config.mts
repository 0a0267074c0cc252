import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { include: ["test/unit/**/*.test.ts", "test/unit/**/*.test.tsx"], testTimeout: 120_000 },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
});
