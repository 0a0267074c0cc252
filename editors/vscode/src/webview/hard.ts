/**
 * Markdown that would cost more than it is worth: the parser takes quadratic time within one paragraph, and a call for
 * each level of a quotation or list. No person writes such text; a web page or a broken model may.
 */

/** Marks of emphasis, links and code in one paragraph. */
const MARKS = 2_000;
const LEVELS = 60;

const NESTED = new RegExp(`^[ \\t]*(?:(?:>|[-*+]|\\d{1,9}[.)])[ \\t]*){${String(LEVELS)}}`, "u");

export function isHard(source: string): boolean {
  if (source.length < LEVELS) return false;
  let marks = 0;
  let fence = "";
  for (const line of source.split("\n")) {
    const mark = /^ {0,3}(`{3,}|~{3,})/u.exec(line)?.[1];
    if (fence !== "") {
      if (mark?.startsWith(fence)) fence = "";
      continue;
    }
    if (mark !== undefined) {
      fence = mark;
      marks = 0;
      continue;
    }
    if (NESTED.test(line)) return true;
    marks = line.trim() === "" ? 0 : marks + count(line);
    if (marks > MARKS) return true;
  }
  return false;
}

function count(line: string): number {
  let found = 0;
  for (let index = 0; index < line.length; index += 1) {
    if ("[]*_`<~".includes(line.charAt(index))) found += 1;
  }
  return found;
}
