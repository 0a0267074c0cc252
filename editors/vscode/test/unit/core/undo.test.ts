import { describe, expect, it } from "vitest";
import type { Item } from "../../../src/core/messages.js";
import type { UndoChange, UndoCheckpoint } from "../../../src/core/undoMethods.js";
import { readChangesResponse, readCheckpointsResponse, readUndoResponse } from "../../../src/core/undoMethods.js";
import { hasUndo, Kept, linesOfHunk, promptsOf, sum } from "../../../src/core/undo.js";

function user(id: string, text: string, messageId?: string): Item {
  return { id, type: "user", text, attachments: [], ...(messageId === undefined ? {} : { messageId }) };
}

function point(prompt: number, title: string, cut = false, messageId = ""): UndoCheckpoint {
  return { prompt, title, undone: true, cut, messageId, time: "", files: [], notCovered: [] };
}

/** `b` is now `B`, and there is a new line at the end. */
function edited(above = ""): UndoChange {
  const up = above === "" ? 0 : 1;
  return {
    path: "/w/a.txt",
    kind: "changed",
    oldText: `${above}a\nb\nc\n`,
    newText: `${above}a\nB\nc\nd`,
    shown: true,
    added: 2,
    removed: 1,
    calls: ["t1"],
    words: "",
    mixed: false,
    cache: false,
    hunks: [
      { id: "b", oldStart: 2 + up, oldLines: 1, newStart: 2 + up, newLines: 1 },
      { id: "d", oldStart: 3 + up, oldLines: 0, newStart: 4 + up, newLines: 1 },
    ],
  };
}

describe("what the agent answers", () => {
  it("is advertised with a version", () => {
    expect(hasUndo({ undo: { version: 1 } })).toBe(true);
    expect([undefined, null, {}, { undo: true }, { undo: { version: 2 } }].map(hasUndo)).toEqual([false, false, false, false, false]);
  });

  it("is taken as far as it is what it should be", () => {
    expect(readCheckpointsResponse({ checkpoints: [{ prompt: 3, time: "t", title: "Do", files: [{ path: "/a", kind: "odd", added: 2 }, {}], notCovered: ["/big"] }, 7], redo: true })).toEqual({
      checkpoints: [
        { prompt: 3, time: "t", title: "Do", messageId: "", undone: false, cut: false, files: [{ path: "/a", kind: "changed", added: 2, removed: 0, cache: false }, { path: "", kind: "changed", added: 0, removed: 0, cache: false }], notCovered: ["/big"] },
        { prompt: 0, time: "", title: "", messageId: "", undone: false, cut: false, files: [], notCovered: [] },
      ],
      redo: true,
    });
    expect(readCheckpointsResponse(null)).toEqual({ checkpoints: [], redo: false });
    expect(readChangesResponse({ changes: [{ path: "/a", kind: "created", oldText: null, shown: false, mixed: true, hunks: [{ id: "h", newLines: 1 }] }], notCovered: ["/big: too large"] })).toMatchObject({
      changes: [{ path: "/a", kind: "created", oldText: null, newText: "", shown: false, mixed: true, hunks: [{ id: "h", oldStart: 0, newLines: 1 }] }],
      notCovered: ["/big: too large"],
    });
    expect(readUndoResponse({ conflicts: [{ path: "/a", why: "changed since", mergeable: true }], words: "No." })).toEqual({
      changes: [],
      conflicts: [{ path: "/a", why: "changed since", mergeable: true }],
      done: false,
      words: "No.",
    });
  });
});

describe("the messages of the chat", () => {
  it.each([
    ["in order, where none is missing", [user("a", "One"), user("b", "One")], [point(1, "One"), point(4, "One")], { a: 1, b: 4 }],
    ["without those that were taken back", [user("a", "One")], [point(1, "One"), point(2, "One", true)], { a: 1 }],
    ["by their first words, where a command is between", [user("a", "One\n  more words"), user("b", "/compact"), user("c", "Two")], [point(1, "One more…"), point(2, "Two")], { a: 1, c: 2 }],
    ["the latest where words are the same", [user("a", "go on"), user("b", "/x"), user("c", "go on")], [point(1, "go on"), point(2, "go on")], { a: 1, c: 2 }],
    ["by their ids, where they were loaded", [user("a", "Go on", "m7"), user("b", "/x", "m8"), user("c", "Go on")], [point(1, "Go on", true, "m1"), point(2, "Go on", false, "m7"), point(3, "Go on", false, "m9")], { a: 2, c: 3 }],
    ["not where nothing fits", [user("a", "One")], [point(1, "Two")], {}],
  ])("are given the agent's numbers: %s", (_, items, checkpoints, numbers) => {
    expect(promptsOf(items, checkpoints)).toEqual(numbers);
  });
});

describe("hunks", () => {
  it("are lines of both texts", () => {
    const change = edited();
    expect(change.hunks.map((hunk) => linesOfHunk(change, hunk))).toEqual([
      { removed: ["b\n"], added: ["B\n"] },
      { removed: [], added: ["d"] },
    ]);
    expect(sum([change, change])).toBe("2 files +4 −2");
  });

  it("that are kept are not listed until they change, wherever they move", () => {
    const kept = new Kept();
    const change = edited();
    const [first, second] = change.hunks;
    if (first === undefined || second === undefined) throw new Error("no hunks");
    kept.keep(change, first);
    expect(kept.left(change)).toEqual({ hunks: [second], any: true, added: 1, removed: 0 });
    kept.keep(change);
    expect(kept.left(edited("above\n")).any).toBe(false);
    expect(kept.left({ ...change, newText: "a\nBB\nc\nd" }).hunks).toEqual([first]);
  });

  it("files without hunks are kept until another call changes them", () => {
    const kept = new Kept();
    const image = { ...edited(), hunks: [], shown: false };
    kept.keep(image);
    expect(kept.left(image).any).toBe(false);
    expect(kept.left({ ...image, calls: ["t1", "t2"] }).any).toBe(true);
  });
});
