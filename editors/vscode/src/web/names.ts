/** Names of folders and files on the server, for what is being written. Nobody is told of what goes wrong: a name can be typed. */
import type { Completion } from "../core/messages.js";
import { labelOfUri } from "../core/uris.js";

const PATIENCE = 5_000;

/** Folders whose path begins so; without one: where sessions may begin. */
export async function foldersLike(path = ""): Promise<readonly string[]> {
  return await asked("/folders", { path });
}

/** Files below `folder` for what stands behind an `@`. */
export async function filesLike(folder: string, query: string): Promise<readonly Completion[]> {
  const found = await asked("/files", { folder, query });
  return found.map((path) => fileEntry(folder, path));
}

export function fileEntry(folder: string, path: string): Completion {
  const entry = { insert: path, label: labelOfUri(path.replace(/\/$/u, "")), detail: path };
  if (path.endsWith("/")) {
    return entry;
  }
  const whole = `${folder.replace(/\/+$/u, "")}/${path}`;
  const uri = `file://${whole.split("/").map(encodeURIComponent).join("/")}`;
  return { ...entry, attachment: { kind: "file", uri, label: path } };
}

async function asked(path: string, query: Readonly<Record<string, string>>): Promise<readonly string[]> {
  try {
    const answer = await fetch(`${path}?${new URLSearchParams(query).toString()}`, { signal: AbortSignal.timeout(PATIENCE) });
    const found: unknown = answer.ok ? await answer.json() : [];
    return Array.isArray(found) ? found.filter((one): one is string => typeof one === "string") : [];
  } catch {
    return [];
  }
}
