// Bundles the extension: `extension.js` is what VS Code loads at start; the rest is loaded when it is first needed.
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as esbuild from "esbuild";

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

/** The licences of all packages that are in the bundles. */
async function writeNotices(inputs) {
  const folders = new Set(inputs.flatMap((input) => /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/u.exec(input)?.[0] ?? []));
  const notices = [];
  for (const folder of [...folders].sort()) {
    const { name, version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    const files = (await readdir(folder)).filter((file) => /^licen[cs]e/iu.test(file)).sort();
    if (files.length === 0) {
      throw new Error(`${name} has no licence file`);
    }
    const texts = await Promise.all(files.map((file) => readFile(join(folder, file), "utf8")));
    notices.push(`${name} ${version} (${license})\n\n${texts.join("\n\n").trim()}\n`);
  }
  await writeFile("dist/THIRD_PARTY_NOTICES.txt", notices.join(`\n${"-".repeat(80)}\n\n`));
}

await rm("dist", { recursive: true, force: true });
if (process.argv.includes("--watch")) {
  for (const build of builds) {
    await (await esbuild.context(build)).watch();
  }
} else {
  const results = await Promise.all(builds.map((build) => esbuild.build(build)));
  await writeNotices(results.flatMap(({ metafile }) => Object.keys(metafile.inputs)));
}
