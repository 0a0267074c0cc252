/** What is being completed at the cursor, and how the text reads when an entry is taken. Plain functions. */
import type { Completion, SlashCommand } from "../core/messages";

export interface Trigger {
  readonly sign: "/" | "@";
  /** Where the sign stands. */
  readonly start: number;
  /** What stands between the sign and the cursor. */
  readonly query: string;
}

/** The `/` that begins the text, or the `@` that begins the word, which the cursor is in; null if there is none. */
export function triggerAt(text: string, cursor: number): Trigger | null {
  const before = text.slice(0, cursor);
  const command = /^\/(\S*)$/.exec(before);
  if (command) return { sign: "/", start: 0, query: command[1] ?? "" };
  const mention = /(?:^|[\s([{"'])@([^\s@]*)$/.exec(before);
  if (!mention) return null;
  const query = mention[1] ?? "";
  return { sign: "@", start: cursor - query.length - 1, query };
}

/** The commands that `query` may mean: those that begin with it, then those that have it in their name. */
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

/** The text with `entry` in the place of what was typed, and where the cursor then stands. */
export function complete(text: string, cursor: number, trigger: Trigger, entry: Completion): { text: string; cursor: number } {
  const after = text.slice(cursor);
  const taken = `${trigger.sign}${entry.insert}${/^\s/.test(after) ? "" : " "}`;
  const head = text.slice(0, trigger.start) + taken;
  return { text: head + after, cursor: head.length + (/^\s/.test(after) ? 1 : 0) };
}
