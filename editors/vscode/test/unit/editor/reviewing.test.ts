import { readFileSync } from "node:fs";
import { afterEach, expect, test, vi } from "vitest";
import type { AgentHost } from "../../../src/agent/host.js";
import type { Undo } from "../../../src/agent/undo.js";
import { Emitter } from "../../../src/core/emitter.js";
import { Kept, sum } from "../../../src/core/undo.js";
import type { UndoChange } from "../../../src/core/undoMethods.js";
import type { Previews } from "../../../src/editor/previews.js";
import type { Restoring } from "../../../src/editor/restoring.js";
import { ChangesTree } from "../../../src/status/changes.js";
import { Hunks } from "../../../src/status/hunks.js";
import { fire, Range, Uri, window } from "./vscode.js";

vi.mock("vscode", async () => (await import("./vscode.js")).vscode);
afterEach(() => {
  vi.useRealTimers();
  window.visibleTextEditors = [];
});

function change(path: string): UndoChange {
  const hunks = [{ id: "h", oldStart: 1, oldLines: 0, newStart: 1, newLines: 1 }];
  return { path, kind: "changed", added: 1, removed: 0, oldText: "", newText: "one\n", shown: true, words: "", mixed: false, cache: path.includes("__pycache__"), calls: [], hunks };
}

interface Undoing {
  readonly undo: Undo;
  readonly keeps: Kept;
  readonly soon: ReturnType<typeof vi.fn>;
}

function undoing(...changes: UndoChange[]): Undoing {
  const keeps = new Kept();
  const soon = vi.fn();
  const turn = { changes, notCovered: [] };
  const undo = { changed: new Emitter<undefined>(), keeps, soon, now: { turn, session: turn, last: { prompt: 1 } }, left: changes } as unknown as Undo;
  return { undo, keeps, soon };
}

test("what is said of a file that was kept a moment ago concerns no other file", async () => {
  const { undo, keeps } = undoing(change("/w/a"), change("/w/b"));
  const restoring = { takeBack: vi.fn(), revert: vi.fn() };
  const tree = new ChangesTree({} as AgentHost, undo, {} as Previews, restoring as unknown as Restoring);
  await tree.act("keep", "/w/a");
  await tree.act("keep", "/w/a");
  await tree.act("undo", "/w/a");
  expect(keeps.left(change("/w/b")).any).toBe(true);
  expect(restoring.takeBack).not.toHaveBeenCalled();
  await tree.act("undo", "/w/b");
  await tree.act("undo");
  expect([restoring.revert, restoring.takeBack].map(({ mock }) => mock.calls.length)).toEqual([1, 1]);
});

test("what programs make again is one folded row, counted only alone, and not part of the review", async () => {
  const cache = change("/w/__pycache__/a.pyc");
  const { undo } = undoing(change("/w/a"), cache);
  const all = vi.fn();
  const tree = new ChangesTree({} as AgentHost, undo, { all } as unknown as Previews, {} as Restoring);
  const [part] = tree.getChildren();
  const rows = tree.getChildren(part);
  expect(rows.map(({ type }) => type)).toEqual(["file", "caches"]);
  expect(tree.getChildren(rows[1])).toEqual([{ type: "file", part: "turn", change: cache }]);
  expect([sum([change("/w/a"), cache]), sum([cache])]).toEqual(["1 file +1", "1 cache file"]);
  await tree.act("review");
  expect(all.mock.calls[0]?.[0]).toEqual([change("/w/a")]);
  await tree.act("keep");
  expect(tree.getChildren()).toEqual([]);
});

test("a changed file that another program writes is looked at anew", () => {
  const { undo, soon } = undoing(change("/w/a"));
  const hunks = new Hunks(undo);
  undo.changed.fire(undefined);
  const contentChanges = [{ range: new Range(0, 0, 0, 0), text: "new\n" }];
  fire("document", { document: { uri: Uri.file("/w/a"), isDirty: true }, contentChanges });
  fire("document", { document: { uri: Uri.file("/w/b"), isDirty: false }, contentChanges });
  expect(soon).not.toHaveBeenCalled();
  fire("document", { document: { uri: Uri.file("/w/a"), isDirty: false }, contentChanges });
  expect(soon).toHaveBeenCalledOnce();
  hunks.dispose();
});

test("what was changed moves with the text until the agent was asked again", () => {
  vi.useFakeTimers();
  const lines: number[] = [];
  const editor = { document: { uri: Uri.file("/w/a"), lineCount: 9 }, setDecorations: (_: object, ranges: { range: Range }[]) => lines.push(...ranges.map(({ range }) => range.line)) };
  window.visibleTextEditors = [editor];
  const { undo } = undoing(change("/w/a"));
  const hunks = new Hunks(undo);
  const draw = (): void => {
    undo.changed.fire(undefined);
    vi.runAllTimers();
  };
  draw();
  fire("document", { document: { uri: Uri.file("/w/a"), isDirty: true }, contentChanges: [{ range: new Range(0, 0, 0, 0), text: "new\n\n" }] });
  draw(); // A turn runs: nothing new is known.
  Object.assign(undo, { left: [change("/w/a")] });
  draw();
  expect(lines).toEqual([0, 2, 0]);
  hunks.dispose();
});

test("what was changed is seen in a theme of high contrast, too", () => {
  vi.useFakeTimers();
  const drawn: object[] = [];
  const editor = { document: { uri: Uri.file("/w/a"), lineCount: 2 }, setDecorations: (type: object, ranges: unknown[]) => ranges.length > 0 && drawn.push(type) };
  window.visibleTextEditors = [editor];
  const { undo } = undoing(change("/w/a"));
  const hunks = new Hunks(undo);
  undo.changed.fire(undefined);
  vi.runAllTimers();
  window.activeColorTheme.kind = 3;
  fire("ActiveColorTheme");
  vi.runAllTimers();
  expect(drawn.map((type) => "borderColor" in type)).toEqual([false, true]);
  hunks.dispose();
});

test("the keys for the next change stay with the diff editor where that has them", () => {
  const text = readFileSync(new URL("../../../package.json", import.meta.url), "utf8");
  const { contributes } = JSON.parse(text) as { contributes: { keybindings: { key: string; when: string }[] } };
  const bindings = contributes.keybindings.filter(({ key }) => key.endsWith("alt+f5"));
  expect(bindings.map(({ when }) => when.split(" && ").includes("!isInDiffEditor"))).toEqual([true, true]);
});
