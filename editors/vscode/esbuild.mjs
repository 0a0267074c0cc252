// Bundles the extension: `extension.js` is what VS Code loads at start; the rest is loaded when it is first needed.
import { rm, writeFile } from "node:fs/promises";
import * as esbuild from "esbuild";
import { noticesOf } from "./notices.mjs";

const production = process.argv.includes("--production");
const shared = {
  bundle: true,
  minify: production,
  sourcemap: production ? false : "linked",
  logLevel: "info",
  legalComments: "none",
  metafile: true,
  define: { "process.env.NODE_ENV": JSON.stringify(production ? "production" : "development") },
};

const builds = [
  {
    ...shared,
    entryPoints: ["src/extension.ts"],
    outdir: "dist",
    platform: "node",
    target: "node20",
    format: "cjs",
    external: ["vscode", "./agent/connection.js"],
  },
  {
    ...shared,
    entryPoints: ["src/agent/connection.ts"],
    outdir: "dist/agent",
    platform: "node",
    target: "node20",
    format: "cjs",
    external: ["vscode"],
  },
  {
    ...shared,
    entryPoints: { chat: "src/webview/main.tsx", highlight: "src/webview/highlight.ts" },
    outdir: "dist/webview",
    platform: "browser",
    target: ["chrome120", "safari17"],
    format: "iife",
    jsx: "automatic",
    jsxImportSource: "preact",
    loader: { ".css": "css" },
  },
];

await rm("dist", { recursive: true, force: true });
if (process.argv.includes("--watch")) {
  for (const build of builds) {
    await (await esbuild.context(build)).watch();
  }
} else {
  const results = await Promise.all(builds.map((build) => esbuild.build(build)));
  await writeFile("dist/THIRD_PARTY_NOTICES.txt", await noticesOf(results.flatMap(({ metafile }) => Object.keys(metafile.inputs))));
}
