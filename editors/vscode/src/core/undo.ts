/** The agent's undo (`_session/checkpoints`, `changes`, `undo`, `redo`): its answers, checked, and what they mean here. */
import type { Item, PromptFacts } from "./messages.js";
import { plural } from "./words.js";

/** The version of the methods that this extension speaks. */
const VERSION = 1;

/** Advertised by `agentCapabilities._meta.undo`. */
export function hasUndo(meta: unknown): boolean {
  return record(record(meta)["undo"])["version"] === VERSION;
}

export type What = "files" | "conversation" | "both";

export interface Checkpoint {
  readonly prompt: number;
  readonly time: string;
  readonly title: string;
  readonly messageId: string;
  /** Its changes were taken back. */
  readonly undone: boolean;
  /** Its messages were taken back. */
  readonly cut: boolean;
  readonly files: number;
}

export interface Checkpoints {
  readonly list: readonly Checkpoint[];
  readonly redo: boolean;
}

/** Lines counted from 1; of nothing, the line before. */
export interface Hunk {
  /** What it is known by, wherever it stands. */
  readonly id: string;
  readonly oldStart: number;
  readonly oldLines: number;
  readonly newStart: number;
  readonly newLines: number;
}

export interface Change {
  readonly path: string;
  readonly kind: "created" | "changed" | "deleted";
  /** `null`: there is no file. Empty where it is not shown. */
  readonly oldText: string | null;
  readonly newText: string | null;
  /** False: no text, or too long. */
  readonly shown: boolean;
  readonly added: number;
  readonly removed: number;
  readonly calls: readonly string[];
  /** What changed besides the text, or why that is not shown. */
  readonly words: string;
  /** Whether somebody else has changed the file as well. */
  readonly mixed: boolean;
  readonly hunks: readonly Hunk[];
}

export interface Changes {
  readonly list: readonly Change[];
  readonly notCovered: readonly string[];
}

export interface Conflict {
  readonly path: string;
  readonly why: string;
  readonly mergeable: boolean;
}

export interface Outcome {
  readonly changes: readonly Change[];
  readonly conflicts: readonly Conflict[];
  readonly done: boolean;
  readonly words: string;
}

// --- answers --------------------------------------------------------------------------------------------------------

export function checkpointsOf(answer: unknown): Checkpoints {
  const { checkpoints, redo } = record(answer);
  const all = array(checkpoints).map(record).map((one) => ({
    prompt: count(one["prompt"]),
    time: text(one["time"]),
    title: text(one["title"]),
    messageId: text(one["messageId"]),
    undone: one["undone"] === true,
    cut: one["cut"] === true,
    files: array(one["files"]).length,
  }));
  return { list: all, redo: redo === true };
}

export function changesOf(answer: unknown): Changes {
  const { changes, notCovered } = record(answer);
  return { list: array(changes).map(changeOf), notCovered: array(notCovered).map(text) };
}

export function outcomeOf(answer: unknown): Outcome {
  const { changes, conflicts, done, words } = record(answer);
  return {
    changes: array(changes).map(changeOf),
    conflicts: array(conflicts).map(record).map(({ path, why, mergeable }) => ({ path: text(path), why: text(why), mergeable: mergeable === true })),
    done: done === true,
    words: text(words),
  };
}

function changeOf(answer: unknown): Change {
  const one = record(answer);
  const kind = one["kind"];
  return {
    path: text(one["path"]),
    kind: kind === "created" || kind === "deleted" ? kind : "changed",
    oldText: textOrNone(one["oldText"]),
    newText: textOrNone(one["newText"]),
    shown: one["shown"] !== false,
    added: count(one["added"]),
    removed: count(one["removed"]),
    calls: array(one["calls"]).map(text),
    words: text(one["words"]),
    mixed: one["mixed"] === true,
    hunks: array(one["hunks"]).map(record).map((hunk) => ({
      id: text(hunk["id"]),
      oldStart: count(hunk["oldStart"]),
      oldLines: count(hunk["oldLines"]),
      newStart: count(hunk["newStart"]),
      newLines: count(hunk["newLines"]),
    })),
  };
}

function record(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

function array(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function textOrNone(value: unknown): string | null {
  return value === null ? null : text(value);
}

function count(value: unknown): number {
  return typeof value === "number" ? value : 0;
}

// --- prompts of the chat --------------------------------------------------------------------------------------------

/**
 * Which of the agent's prompts the chat's messages are: by their ids where they were loaded, else in order, else by
 * their words. Commands, and what was said while a turn ran, have no number.
 */
export function promptsOf(items: readonly Item[], checkpoints: readonly Checkpoint[]): PromptFacts["of"] {
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
export function cutsOf({ list }: Checkpoints): string {
  return list.flatMap(({ prompt, cut: gone }) => (gone ? [prompt] : [])).join();
}

function begins(words: string, title: string): boolean {
  const first = oneLine(title).replace(/(?:…|\.\.\.)$/u, "").trimEnd();
  return first !== "" && oneLine(words).startsWith(first);
}

function oneLine(words: string): string {
  return words.replace(/\s+/gu, " ").trim();
}

// --- hunks ----------------------------------------------------------------------------------------------------------

/** The lines of a hunk before and after, each with its end. */
export function linesOfHunk({ oldText, newText }: Change, hunk: Hunk): { readonly removed: readonly string[]; readonly added: readonly string[] } {
  return { removed: cut(oldText, hunk.oldStart, hunk.oldLines), added: cut(newText, hunk.newStart, hunk.newLines) };
}

function cut(whole: string | null, start: number, lines: number): readonly string[] {
  return lines === 0 ? [] : ((whole ?? "").match(/[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$/gu) ?? []).slice(start - 1, start - 1 + lines);
}

/** What a hunk is told by, wherever its lines stand: they move with what changes above them. */
export function keyOfHunk(change: Change, hunk: Hunk): string {
  return JSON.stringify([change.path, linesOfHunk(change, hunk)]);
}

/** The same for a change without hunks: a binary file, an empty one, a mode. */
function keyOfFile({ path, kind, calls, added, removed }: Change): string {
  return JSON.stringify([path, kind, calls, added, removed]);
}

/** What the user has seen and keeps: it is not listed again until it changes. */
export class Kept {
  private readonly keys = new Set<string>();

  keep(change: Change, hunk?: Hunk): void {
    const hunks = hunk === undefined ? change.hunks : [hunk];
    for (const one of hunks) {
      this.keys.add(keyOfHunk(change, one));
    }
    if (hunks.length === 0) {
      this.keys.add(keyOfFile(change));
    }
  }

  /** The hunks that are left to look at, and whether the change is. */
  left(change: Change): { readonly hunks: readonly Hunk[]; readonly any: boolean } {
    const hunks = change.hunks.filter((hunk) => !this.keys.has(keyOfHunk(change, hunk)));
    return { hunks, any: change.hunks.length === 0 ? !this.keys.has(keyOfFile(change)) : hunks.length > 0 };
  }
}

// --- words ----------------------------------------------------------------------------------------------------------

export function figures({ added, removed }: { readonly added: number; readonly removed: number }): string {
  return [...(added > 0 ? [`+${String(added)}`] : []), ...(removed > 0 ? [`−${String(removed)}`] : [])].join(" ");
}

/** Of several changes: "2 files +3 −1". */
export function sum(changes: readonly Change[]): string {
  const added = changes.reduce((all, change) => all + change.added, 0);
  const removed = changes.reduce((all, change) => all + change.removed, 0);
  return [plural(changes.length, "file"), figures({ added, removed })].join(" ").trim();
}
