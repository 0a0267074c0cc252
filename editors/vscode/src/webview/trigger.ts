/** What is being completed at the cursor, and the text after an entry is accepted. Plain functions. */
import type { Completion, SlashCommand } from "../core/messages";

export interface Trigger {
  readonly sign: "/" | "@";
  /** Position of the sign. */
  readonly start: number;
  /** Text between the sign and the cursor. */
  readonly query: string;
}

/** The `/` at the beginning of the text, or the `@` of the word, at the cursor; null if there is none. */
export function triggerAt(text: string, cursor: number): Trigger | null {
  const before = text.slice(0, cursor);
  const command = /^\/(\S*)$/.exec(before);
  if (command) return { sign: "/", start: 0, query: command[1] ?? "" };
  const mention = /(?:^|[\s([{"'])@([^\s@]*)$/.exec(before);
  if (!mention) return null;
  const query = mention[1] ?? "";
  return { sign: "@", start: cursor - query.length - 1, query };
}

/** The commands that `query` may mean: those that begin with it, then those that contain it. */
export function commandsFor(query: string, commands: readonly SlashCommand[]): readonly Completion[] {
  const wanted = query.toLowerCase();
  const begins = commands.filter(({ name }) => name.toLowerCase().startsWith(wanted));
  const has = commands.filter((command) => !begins.includes(command) && command.name.toLowerCase().includes(wanted));
  return [...begins, ...has].map(({ name, description, hint }) => ({
    insert: name,
    label: hint === undefined ? `/${name}` : `/${name} ${hint}`,
    detail: description,
  }));
}

/** The text with `entry` in place of what was typed, and the new cursor position. */
export function complete(text: string, cursor: number, trigger: Trigger, entry: Completion): { text: string; cursor: number } {
  const after = text.slice(cursor);
  const taken = `${trigger.sign}${entry.insert}${/^\s/.test(after) ? "" : " "}`;
  const head = text.slice(0, trigger.start) + taken;
  return { text: head + after, cursor: head.length + (/^\s/.test(after) ? 1 : 0) };
}
