import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

/** The licences of all packages that these files of bundles are from. */
export async function noticesOf(inputs) {
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
  return notices.join(`\n${"-".repeat(80)}\n\n`);
}
