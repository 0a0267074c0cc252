/** Lines of texts: where they move when a text is edited, and how many of them a change adds and removes. */

export interface LineEdit {
  /** 0-based, inclusive. */
  readonly startLine: number;
  readonly endLine: number;
  /** Number of line breaks in the new text. */
  readonly newBreaks: number;
  /** Whether the edit begins at the first column of `startLine`. */
  readonly atLineStart: boolean;
}

/** Position of `line` (0-based) after `edit`: lines below move, a replaced line goes to the edit's beginning. */
export function lineAfter(line: number, edit: LineEdit): number {
  const removed = edit.endLine - edit.startLine;
  if (line < edit.startLine) {
    return line;
  }
  if (removed === 0 && line === edit.startLine) {
    return edit.atLineStart ? line + edit.newBreaks : line;
  }
  if (line > edit.endLine || (line === edit.endLine && removed > 0)) {
    return line - removed + edit.newBreaks;
  }
  return edit.startLine;
}

export interface LineCount {
  readonly added: number;
  readonly removed: number;
}

const MOST_LINES = 2_000;

/**
 * How many lines are added and removed, by a longest common subsequence of the lines between the common
 * beginning and end. If both sides have more than 2,000 lines left, they all count as changed.
 */
export function countChanges(before: string, after: string): LineCount {
  const old = linesOf(before);
  const fresh = linesOf(after);
  let start = 0;
  while (start < old.length && start < fresh.length && old[start] === fresh[start]) {
    start += 1;
  }
  let end = 0;
  while (end < old.length - start && end < fresh.length - start && old[old.length - 1 - end] === fresh[fresh.length - 1 - end]) {
    end += 1;
  }
  const left = old.slice(start, old.length - end);
  const right = fresh.slice(start, fresh.length - end);
  if (left.length === 0 || right.length === 0 || left.length > MOST_LINES || right.length > MOST_LINES) {
    return { added: right.length, removed: left.length };
  }
  let row = new Uint32Array(right.length + 1);
  for (const line of left) {
    const next = new Uint32Array(right.length + 1);
    for (let column = 0; column < right.length; column += 1) {
      next[column + 1] = line === right[column] ? (row[column] ?? 0) + 1 : Math.max(next[column] ?? 0, row[column + 1] ?? 0);
    }
    row = next;
  }
  const common = row[right.length] ?? 0;
  return { added: right.length - common, removed: left.length - common };
}

function linesOf(text: string): string[] {
  if (text === "") {
    return [];
  }
  const lines = text.split(/\r\n|\r|\n/u);
  if (lines.at(-1) === "") {
    lines.pop();
  }
  return lines;
}

/**
 * The smallest replacement that turns `before` into `after`, as offsets into `before`. It never begins or ends inside a
 * surrogate pair or between the two characters of a line break.
 */
export function smallestChange(before: string, after: string): { start: number; end: number; text: string } | undefined {
  if (before === after) {
    return undefined;
  }
  const most = Math.min(before.length, after.length);
  let start = 0;
  while (start < most && before.charCodeAt(start) === after.charCodeAt(start)) {
    start += 1;
  }
  if (start > 0 && splits(before, after, start)) {
    start -= 1;
  }
  let end = 0;
  while (end < most - start && before.charCodeAt(before.length - 1 - end) === after.charCodeAt(after.length - 1 - end)) {
    end += 1;
  }
  while (end > 0 && (splitsAt(before, before.length - end) || splitsAt(after, after.length - end))) {
    end -= 1;
  }
  return { start, end: before.length - end, text: after.slice(start, after.length - end) };
}

function splits(before: string, after: string, at: number): boolean {
  return splitsAt(before, at) || splitsAt(after, at);
}

function splitsAt(text: string, at: number): boolean {
  if (at <= 0 || at > text.length) {
    return false;
  }
  const left = text.charCodeAt(at - 1);
  return (left >= 0xd800 && left <= 0xdbff) || (left === 0x0d && text.charCodeAt(at) === 0x0a);
}
