/** What the answers of the agent's undo (`undoMethods.ts`) mean here. */
import type { Item, PromptFacts } from "./messages.js";
import type { CheckpointsResponse, UndoChange, UndoCheckpoint, UndoHunk, UndoRequest } from "./undoMethods.js";
import { record, UNDO_VERSION } from "./undoMethods.js";
import { plural } from "./words.js";

/** Advertised by `agentCapabilities._meta.undo`. */
export function hasUndo(meta: unknown): boolean {
  return record(record(meta)["undo"])["version"] === UNDO_VERSION;
}

export type What = NonNullable<UndoRequest["what"]>;

// --- prompts of the chat --------------------------------------------------------------------------------------------

/**
 * Which of the agent's prompts the chat's messages are: by their ids where they were loaded, else in order, else by
 * their words. Commands, and what was said while a turn ran, have no number.
 */
export function promptsOf(items: readonly Item[], checkpoints: readonly UndoCheckpoint[]): PromptFacts["of"] {
  const of: Record<string, number> = {};
  const users = items.filter((item) => item.type === "user");
  const byId = new Map(checkpoints.filter(({ messageId }) => messageId !== "").map((one) => [one.messageId, one.prompt]));
  const said = users.filter(({ messageId }) => messageId === undefined || byId.size === 0);
  for (const { id, messageId } of users) {
    const prompt = byId.get(messageId ?? "");
    if (prompt !== undefined) {
      of[id] = prompt;
    }
  }
  const open = checkpoints.filter(({ prompt, cut: gone }) => !gone && !Object.values(of).includes(prompt));
  if (open.length === said.length && said.every(({ text: words }, index) => words === "" || begins(words, open[index]?.title ?? ""))) {
    return { ...of, ...Object.fromEntries(said.map(({ id }, index) => [id, open[index]?.prompt ?? 0])) };
  }
  const newest = [...open].reverse();
  for (const { id, text: words } of said.reverse()) {
    const at = newest.findIndex(({ title }) => begins(words, title));
    const [found] = at < 0 ? [] : newest.splice(0, at + 1).slice(-1);
    if (found !== undefined) {
      of[id] = found.prompt;
    }
  }
  return of;
}

/** The prompts whose messages were taken back. */
export function cutsOf({ checkpoints }: CheckpointsResponse): string {
  return checkpoints.flatMap(({ prompt, cut: gone }) => (gone ? [prompt] : [])).join();
}

function begins(words: string, title: string): boolean {
  const first = oneLine(title).replace(/(?:…|\.\.\.)$/u, "").trimEnd();
  return first !== "" && oneLine(words).startsWith(first);
}

function oneLine(words: string): string {
  return words.replace(/\s+/gu, " ").trim();
}

// --- hunks ----------------------------------------------------------------------------------------------------------

interface Lines {
  readonly removed: readonly string[];
  readonly added: readonly string[];
}

/** All lines of both texts: they are asked for hunk by hunk, with each update of the chat. */
const LINES = new WeakMap<UndoChange, Lines>();

/** The lines of a hunk before and after, each with its end. */
export function linesOfHunk(change: UndoChange, { oldStart, oldLines, newStart, newLines }: UndoHunk): Lines {
  const known = LINES.get(change) ?? { removed: linesOf(change.oldText), added: linesOf(change.newText) };
  LINES.set(change, known);
  return { removed: cut(known.removed, oldStart, oldLines), added: cut(known.added, newStart, newLines) };
}

function linesOf(whole: string | null): readonly string[] {
  return (whole ?? "").match(/[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$/gu) ?? [];
}

function cut(lines: readonly string[], start: number, count: number): readonly string[] {
  return count === 0 ? [] : lines.slice(start - 1, start - 1 + count);
}

/** What a hunk is told by, wherever its lines stand: they move with what changes above them. */
export function keyOfHunk(change: UndoChange, hunk: UndoHunk): string {
  return digest(JSON.stringify([change.path, linesOfHunk(change, hunk)]));
}

/** The same for a change without hunks: a binary file, an empty one, a mode. */
function keyOfFile({ path, kind, calls, added, removed }: UndoChange): string {
  return digest(JSON.stringify([path, kind, calls, added, removed]));
}

/** Short, to be stored: two FNV-1a of 32 bits, the second one of the text from its end. */
function digest(text: string): string {
  let forth = 0x811c9dc5;
  let back = 0x811c9dc5;
  for (let index = 0, last = text.length - 1; index <= last; index += 1) {
    forth = Math.imul(forth ^ text.charCodeAt(index), 0x01000193);
    back = Math.imul(back ^ text.charCodeAt(last - index), 0x01000193);
  }
  return `${(forth >>> 0).toString(36)}.${(back >>> 0).toString(36)}`;
}

/** What is left to look at of a change. */
export interface Left {
  readonly hunks: readonly UndoHunk[];
  /** Whether anything is. */
  readonly any: boolean;
  readonly added: number;
  readonly removed: number;
}

/** What the user has seen and keeps: it is not listed again until it changes. */
export class Kept {
  private readonly keys: Set<string>;

  /** `keys`: of earlier. `save` gets all there are after each change. */
  constructor(
    keys: readonly string[] = [],
    private readonly save: (keys: readonly string[]) => void = () => undefined,
  ) {
    this.keys = new Set(keys);
  }

  keep(change: UndoChange, hunk?: UndoHunk): void {
    const hunks = hunk === undefined ? change.hunks : [hunk];
    for (const one of hunks) {
      this.keys.add(keyOfHunk(change, one));
    }
    if (hunks.length === 0) {
      this.keys.add(keyOfFile(change));
    }
    this.save([...this.keys]);
  }

  left(change: UndoChange): Left {
    const hunks = change.hunks.filter((hunk) => !this.keys.has(keyOfHunk(change, hunk)));
    const any = change.hunks.length === 0 ? !this.keys.has(keyOfFile(change)) : hunks.length > 0;
    if (hunks.length === change.hunks.length) {
      return { hunks, any, added: change.added, removed: change.removed };
    }
    const count = (side: "newLines" | "oldLines"): number => hunks.reduce((all, hunk) => all + hunk[side], 0);
    return { hunks, any, added: count("newLines"), removed: count("oldLines") };
  }
}

// --- words ----------------------------------------------------------------------------------------------------------

export function figures({ added, removed }: { readonly added: number; readonly removed: number }): string {
  return [...(added > 0 ? [`+${String(added)}`] : []), ...(removed > 0 ? [`−${String(removed)}`] : [])].join(" ");
}

/** Of several changes: "2 files +3 −1". What programs make again is counted only where there is nothing else. */
export function sum(changes: readonly UndoChange[]): string {
  const counted = changes.filter(({ cache }) => !cache);
  const added = counted.reduce((all, change) => all + change.added, 0);
  const removed = counted.reduce((all, change) => all + change.removed, 0);
  return counted.length === 0 && changes.length > 0 ? cacheFiles(changes.length) : [plural(counted.length, "file"), figures({ added, removed })].join(" ").trim();
}

/** Those that programs make again. */
export function cacheFiles(count: number): string {
  return plural(count, "cache file");
}
