import { expect, test } from "vitest";
import { HeldLines } from "../../../src/core/heldLines.js";

const free = (): boolean => true;
/** The user is at this line, and sees what is above it. */
const at = (cursor: number) => (line: number) => line > cursor;

function wanted(...lines: number[]): Map<number, string> {
  return new Map(lines.map((line) => [line, `call at ${String(line)}`]));
}

function lines(shown: readonly { readonly line: number }[]): number[] {
  return shown.map(({ line }) => line).sort((left, right) => left - right);
}

test("what would move the text under the cursor comes once the user is elsewhere", () => {
  const held = new HeldLines<string>();
  expect(lines(held.settle(wanted(3, 9), at(5)))).toEqual([9]);
  expect(held.waits).toBe(true);
  expect(lines(held.settle(wanted(3, 9), at(1)))).toEqual([3, 9]);
  expect(held.waits).toBe(false);
});

test("what stands above the cursor stays until the user is elsewhere, at its text", () => {
  const held = new HeldLines<string>();
  held.settle(wanted(3, 9), free);
  expect(lines(held.settle(wanted(), at(5)))).toEqual([3]);
  held.edited([{ startLine: 0, endLine: 0, newBreaks: 2, atLineStart: true }]);
  expect(held.settle(wanted(), at(7))).toEqual([{ line: 5, what: "call at 3" }]);
  expect(held.settle(wanted(), free)).toEqual([]);
  expect(held.waits).toBe(false);
});

test("what says something else at its line says it at once", () => {
  const held = new HeldLines<string>();
  held.settle(wanted(3), free);
  expect(held.settle(new Map([[3, "it has ended"]]), at(5))).toEqual([{ line: 3, what: "it has ended" }]);
});
