import { afterEach, expect, test, vi } from "vitest";
import type { AgentHost } from "../../../src/agent/host.js";
import type { ChatView } from "../../../src/chat/view.js";
import { Asking } from "../../../src/editor/asking.js";
import { fire, notifications, Range, told, Uri, window } from "./vscode.js";

vi.mock("vscode", async () => (await import("./vscode.js")).vscode);
afterEach(() => {
  Object.assign(window, { activeTextEditor: undefined, visibleTextEditors: [] });
  window.state.focused = true;
  told.length = 0;
});

interface Made {
  readonly text: string[];
  selection: Range;
  readonly document: { isDirty: boolean; readonly isUntitled: boolean; readonly uri: Uri; readonly save: () => Promise<boolean> };
}

function editor(path: string, scheme = "file", writable = true): Made & { edit: unknown } {
  const made: Made = { text: [], selection: new Range(0, 0, 1, 0), document: { isDirty: false, isUntitled: scheme === "untitled", uri: new Uri(scheme, path), save: () => Promise.resolve(true) } };
  const edit = (run: (builder: { replace: (_: Range, text: string) => void }) => void): Promise<boolean> => {
    run({ replace: (_, text) => (writable ? made.text.push(text) : 0) });
    return Promise.resolve(writable);
  };
  return Object.assign(made, { edit });
}

const prompts: { text: string; blocks: unknown }[] = [];
const view = { visible: false };
const session = { prompt: (text: string, blocks: unknown) => prompts.push({ text, blocks }) };
const asking = new Asking({ name: "acp-coder", capabilities: {}, ready: () => Promise.resolve(session) } as unknown as AgentHost, view as ChatView);

test("code goes into the file that was used last, or the only one in view, and nowhere else", async () => {
  const [file, other, output] = [editor("/w/a.py"), editor("/w/b.py"), editor("/out", "output")];
  Object.assign(window, { activeTextEditor: file, visibleTextEditors: [output, other, file] });
  await asking.insert("1");
  Object.assign(window, { activeTextEditor: output, visibleTextEditors: [output, other] });
  await asking.insert("2");
  Object.assign(window, { activeTextEditor: undefined, visibleTextEditors: [output, other, file] });
  await asking.insert("3");
  expect([file.text, other.text, output.text]).toEqual([["1"], ["2"], []]);
  expect(told).toEqual(["Put the cursor into a file first."]);
});

test("that a file cannot be changed is said", async () => {
  window.activeTextEditor = editor("/w/a.py", "file", false);
  await asking.insert("1");
  expect(told).toEqual(["w/a.py cannot be changed here."]);
});

test("the selection is edited where it stands once its file is saved", async () => {
  const made = editor("/w/a.py");
  made.document.isDirty = true;
  const save = vi.spyOn(made.document, "save").mockImplementation(() => {
    made.selection = new Range(4, 0, 6, 0); // It was formatted.
    return Promise.resolve(true);
  });
  window.activeTextEditor = Object.assign(made, {});
  window.showInputBox = () => Promise.resolve("Shorten it");
  await asking.edit();
  expect(save).toHaveBeenCalledOnce();
  expect(JSON.stringify(prompts.at(-1)?.blocks)).toContain("a.py:5-6");
});

test.each([
  ["has no file", editor("Untitled-1", "untitled")],
  ["cannot be saved", Object.assign(editor("/w/a.py"), { document: { isDirty: true, isUntitled: false, uri: Uri.file("/w/a.py"), save: () => Promise.resolve(false) } })],
])("nothing is asked about a document that %s", async (_, made) => {
  const before = prompts.length;
  window.activeTextEditor = made;
  window.showInputBox = () => Promise.resolve("Shorten it");
  await asking.edit();
  expect(prompts).toHaveLength(before);
  expect(told).toEqual(["Save the file first: the agent works on what is saved."]);
});

test("one notification tells that the agent is done, until the chat is seen", async () => {
  window.state.focused = false;
  asking.done("One");
  asking.done("Two");
  await vi.waitFor(() => {
    expect([...notifications]).toEqual([expect.stringContaining("acp-coder is done: Two")]);
  });
  window.state.focused = true;
  fire("WindowState");
  expect(notifications.size).toBe(1);
  view.visible = true;
  asking.look();
  await vi.waitFor(() => {
    expect(notifications.size).toBe(0);
  });
  asking.done("Three");
  expect(notifications.size).toBe(0);
});
