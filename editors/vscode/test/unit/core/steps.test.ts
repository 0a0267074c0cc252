import { expect, test } from "vitest";
import { stepFrom } from "../../../src/core/steps.js";

const PLACES = new Map([["a", [2, 8]], ["picture", []], ["b", [5]]]);

test.each([
  ["a", 0, 1, "a 2"],
  ["a", 2, 1, "a 8"],
  ["a", 8, 1, "b 5"],
  ["b", 5, 1, "a 2"],
  ["a", 8, -1, "a 2"],
  ["a", 1, -1, "b 5"],
  ["picture", 0, 1, "a 2"],
  ["elsewhere", 3, 1, "a 2"],
  ["elsewhere", 3, -1, "b 5"],
] as const)("from line %s:%i by %i the cursor goes to %s, over files without places", (path, line, by, place) => {
  const found = stepFrom(PLACES, { path, line }, by);
  expect(`${found?.path ?? ""} ${String(found?.line)}`).toBe(place);
});

test("where there is no change there is no step", () => {
  expect(stepFrom(new Map([["picture", []]]), { path: "a", line: 0 }, 1)).toBeUndefined();
  expect(stepFrom(new Map(), { path: "a", line: 0 }, -1)).toBeUndefined();
});
