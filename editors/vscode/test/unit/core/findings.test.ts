import { describe, expect, it } from "vitest";
import { byFile, findingsOf } from "../../../src/core/findings.js";
import { ToolCalls } from "../../../src/core/toolCalls.js";

const finding = { path: "/src/a.ts", line: 2, severity: "error", message: "wrong" } as const;

describe("findings of a review", () => {
  it("are those of the call's _meta", () => {
    expect(findingsOf({ findings: [finding] })).toEqual([finding]);
    expect(findingsOf({ findings: [] })).toEqual([]);
  });

  it("are unknown where nothing is said of them", () => {
    for (const meta of [undefined, null, {}, { findings: null }, { findings: "x" }, 3]) {
      expect(findingsOf(meta)).toBeUndefined();
    }
  });

  it("leave out what is not one", () => {
    const odd = [null, 3, {}, { ...finding, line: 0 }, { ...finding, line: "2" }, { ...finding, path: "a.ts" }, { ...finding, severity: "bad" }, { ...finding, message: 1 }];
    expect(findingsOf({ findings: [...odd, finding] })).toEqual([finding]);
  });

  it("are grouped by file", () => {
    const other = { ...finding, path: "/src/b.ts" };
    expect([...byFile([finding, other, { ...finding, line: 9 }])].map(([path, found]) => [path, found.length])).toEqual([
      ["/src/a.ts", 2],
      ["/src/b.ts", 1],
    ]);
  });

  it("stay with their call when later updates say nothing of them", () => {
    const calls = new ToolCalls(() => 0);
    const context = { turn: 1, replayed: false };
    calls.apply("s", { toolCallId: "1", title: "Review" }, context);
    expect(calls.get("s", "1")?.findings).toBeUndefined();
    calls.apply("s", { toolCallId: "1", status: "completed", _meta: { findings: [finding] } }, context);
    calls.apply("s", { toolCallId: "1", title: "Reviewed" }, context);
    expect(calls.get("s", "1")?.findings).toEqual([finding]);
  });
});
