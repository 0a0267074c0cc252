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

interface Edit {
  readonly range: { readonly start: { readonly line: number; readonly character: number }; readonly end: { readonly line: number } };
  readonly text: string;
}

/** A change as VS Code tells it. They come from the end of the text to its beginning: earlier lines stay valid. */
export function lineEdit({ range: { start, end }, text }: Edit): LineEdit {
  return { startLine: start.line, endLine: end.line, newBreaks: text.split("\n").length - 1, atLineStart: start.character === 0 };
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

/** Of two sides with more changed lines than this, all count as changed. */
const MOST_LINES = 2_000;

/** The last line of `after` (from 0) that is changed, or at which lines were removed. */
export function lastChange(before: string, after: string): number {
  const old = linesOf(before);
  const fresh = linesOf(after);
  let end = 0;
  while (end < old.length && end < fresh.length && old[old.length - 1 - end] === fresh[fresh.length - 1 - end]) {
    end += 1;
  }
  return Math.max(0, fresh.length - 1 - end);
}

/** So many unchanged lines are shown around a change. */
const AROUND = 3;

/**
 * The changed lines with some around them, as a unified diff writes them: `+`, `-` or a space before each. `@` stands
 * where unchanged lines are left out.
 */
export function diffLines(before: string, after: string): readonly string[] {
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
  const middle = merged(old.slice(start, old.length - end), fresh.slice(start, fresh.length - end));
  const all = [...old.slice(0, start).map((line) => ` ${line}`), ...middle, ...old.slice(old.length - end, old.length).map((line) => ` ${line}`)];
  return middle.length === 0 ? [] : withoutFar(all);
}

/** Both sides in one, removed lines before the added ones. */
function merged(left: readonly string[], right: readonly string[]): string[] {
  const removed = left.map((line) => `-${line}`);
  const added = right.map((line) => `+${line}`);
  if (left.length === 0 || right.length === 0 || left.length > MOST_LINES || right.length > MOST_LINES) {
    return [...removed, ...added];
  }
  // Length of the longest common subsequence of what follows each pair of lines.
  const width = right.length + 1;
  const common = new Uint16Array((left.length + 1) * width);
  for (let row = left.length - 1; row >= 0; row -= 1) {
    for (let column = right.length - 1; column >= 0; column -= 1) {
      const at = row * width + column;
      common[at] = left[row] === right[column] ? (common[at + width + 1] ?? 0) + 1 : Math.max(common[at + width] ?? 0, common[at + 1] ?? 0);
    }
  }
  const lines: string[] = [];
  let row = 0;
  let column = 0;
  while (row < left.length || column < right.length) {
    if (row < left.length && left[row] === right[column]) {
      lines.push(` ${left[row] ?? ""}`);
      row += 1;
      column += 1;
    } else if (row < left.length && (column === right.length || (common[(row + 1) * width + column] ?? 0) >= (common[row * width + column + 1] ?? 0))) {
      lines.push(removed[row] ?? "");
      row += 1;
    } else {
      lines.push(added[column] ?? "");
      column += 1;
    }
  }
  return lines;
}

function withoutFar(lines: readonly string[]): string[] {
  const near = new Set<number>();
  lines.forEach((line, index) => {
    if (!line.startsWith(" ")) {
      for (let at = index - AROUND; at <= index + AROUND; at += 1) {
        near.add(at);
      }
    }
  });
  return lines.flatMap((line, index) => (near.has(index) ? [line] : near.has(index - 1) || index === 0 ? ["@"] : []));
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
