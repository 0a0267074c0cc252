// Builds the page that `acp-coder serve` serves, from the chat's own parts, into the Python package.
import { copyFile, mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createHash } from "node:crypto";
import { join, posix } from "node:path";
import * as esbuild from "esbuild";
import { noticesOf } from "./notices.mjs";

const target = "../../acp_agent/fronts/server/static";
/** Bytes of script that a browser loads before it shows anything; the colours of code come later. */
const MOST_SCRIPT = 400_000;

/** Besides what is bundled. */
const SOURCES = ["src/web/index.html", "src/web/icon.svg", "media/icon.png", "page.mjs", "notices.mjs", "package-lock.json", "../../acp_agent/__init__.py"];

const [version = ""] = /(?<=__version__ = ")[^"]+/u.exec(await readFile("../../acp_agent/__init__.py", "utf8")) ?? [];
const work = `${target}.new`;
await rm(work, { recursive: true, force: true });
await mkdir(work, { recursive: true });
const { metafile } = await esbuild.build({
  entryPoints: { page: "src/web/main.tsx", highlight: "src/webview/highlight.ts" },
  outdir: work,
  bundle: true,
  minify: true,
  legalComments: "none",
  metafile: true,
  platform: "browser",
  target: ["chrome120", "safari17", "firefox121"],
  format: "iife",
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
  // The SDK's zod would try whether it may make functions of texts, which the page's policy forbids and reports.
  banner: { js: "globalThis.__zod_globalConfig={jitless:true};" },
  define: { "process.env.NODE_ENV": '"production"', VERSION: JSON.stringify(version) },
});
for (const [from, to] of [["src/web/index.html", "index.html"], ["src/web/icon.svg", "icon.svg"], ["media/icon.png", "icon.png"]]) {
  await copyFile(from, join(work, to));
}
await writeFile(join(work, "notices.txt"), await noticesOf(Object.keys(metafile.inputs)));
const { bytes } = Object.entries(metafile.outputs).find(([name]) => name.endsWith("/page.js"))[1];
if (bytes > MOST_SCRIPT) {
  throw new Error(`page.js has ${bytes} bytes, ${bytes - MOST_SCRIPT} more than it may have`);
}
await rm(target, { recursive: true, force: true });
await rename(work, target);
// What it was built of, and what came out, as `sha256sum` writes it: tests/house/test_generated.py compares.
const built = (await readdir(target)).map((name) => posix.join(target, name));
const bundled = Object.keys(metafile.inputs).filter((path) => path.startsWith("src/"));
const files = [...new Set([...bundled, ...SOURCES, ...built])].sort();
const lines = files.map(async (path) => `${createHash("sha256").update(await readFile(path)).digest("hex")}  ${path}\n`);
await writeFile("page.sha256", (await Promise.all(lines)).join(""));
console.log(Object.entries(metafile.outputs).map(([name, { bytes: size }]) => `${name.split("/").at(-1)} ${(size / 1000).toFixed(1)} kB`).join(", "));
