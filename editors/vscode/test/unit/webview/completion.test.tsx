// @vitest-environment jsdom
import { afterEach, expect, test, vi } from "vitest";
import { commandsFor, complete, triggerAt } from "../../../src/webview/trigger";
import { TestView } from "./kit";

afterEach(() => {
  vi.useRealTimers();
});

test.each([
  ["/", 1, "/", ""],
  ["/pl", 3, "/", "pl"],
  ["/plan now", 9, null, null],
  ["text /pl", 8, null, null],
  ["@", 1, "@", ""],
  ["see @src/a", 10, "@", "src/a"],
  ["see @src/a", 5, "@", ""],
  ["(@a", 3, "@", "a"],
  ["a\n@b", 4, "@", "b"],
  ["me@example.com", 14, null, null],
  ["@a b", 4, null, null],
  ["/x @a", 5, "@", "a"],
])("in %j with the cursor at %i, %j is completed with %j", (text, cursor, sign, query) => {
  const trigger = triggerAt(text, cursor);
  expect([trigger?.sign ?? null, trigger?.query ?? null]).toEqual([sign, query]);
});

test("an entry takes the place of what was typed, and what follows stays", () => {
  const trigger = triggerAt("see @sr now", 7);
  if (!trigger) throw new Error("Nothing is completed");
  const entry = { insert: "src/a.py", label: "a.py", detail: "" };
  expect(complete("see @sr now", 7, trigger, entry)).toEqual({ text: "see @src/a.py now", cursor: 14 });
});

test("commands that begin with what was typed come before those that have it", () => {
  const commands = ["explain", "plan", "Play"].map((name) => ({ name, description: "" }));
  expect(commandsFor("pla", commands).map(({ insert }) => insert)).toEqual(["plan", "Play", "explain"]);
});

function options(view: TestView): string[] {
  return view.all("[role=option]").map((option) => option.querySelector(".label")?.textContent ?? "");
}

function active(view: TestView): string | undefined {
  const id = view.box.getAttribute("aria-activedescendant");
  return id === null ? undefined : (document.getElementById(id)?.querySelector(".label")?.textContent ?? undefined);
}

test("the list of commands follows the combobox pattern", () => {
  const view = new TestView();
  expect(view.box.getAttribute("role")).toBe("combobox");
  expect(view.box.getAttribute("aria-expanded")).toBe("false");
  view.type("/");
  expect(options(view)).toEqual(["/compact", "/plan <what>"]);
  expect(view.box.getAttribute("aria-expanded")).toBe("true");
  expect(document.getElementById(view.box.getAttribute("aria-controls") ?? "")?.getAttribute("role")).toBe("listbox");
  expect(active(view)).toBe("/compact");
  view.key("ArrowDown");
  expect(active(view)).toBe("/plan <what>");
  expect(view.all("[aria-selected=true]")).toHaveLength(1);
  view.key("ArrowDown");
  expect(active(view)).toBe("/compact");
  view.key("ArrowUp");
  expect(active(view)).toBe("/plan <what>");
});

test.each(["Enter", "Tab"])("%s takes the entry and does not send", (key) => {
  const view = new TestView();
  view.type("/pl");
  expect(view.key(key)).toBe(true);
  expect(view.box.value).toBe("/plan ");
  expect(view.box.selectionStart).toBe(6);
  expect(view.sent("send")).toEqual([]);
  expect(options(view)).toEqual([]);
  expect(document.activeElement).toBe(view.box);
});

test("Escape closes the list, which stays closed for this word", () => {
  const view = new TestView();
  view.type("/");
  expect(view.key("Escape")).toBe(true);
  expect(options(view)).toEqual([]);
  view.type("/p");
  expect(options(view)).toEqual([]);
  view.type("");
  view.type("/p");
  expect(options(view)).toEqual(["/plan <what>", "/compact"]);
});

test("with no command that fits, Enter sends", () => {
  const view = new TestView();
  view.type("/nothing");
  view.key("Enter");
  expect(view.sent("send")).toHaveLength(1);
});

test("a click takes an entry and leaves the cursor in the box", () => {
  const view = new TestView();
  view.type("/");
  const event = new MouseEvent("mousedown", { bubbles: true, cancelable: true });
  view.do(() => view.all("[role=option]")[1]?.dispatchEvent(event));
  expect(event.defaultPrevented).toBe(true);
  expect(view.box.value).toBe("/plan ");
});

function asking(): TestView {
  const view = new TestView();
  view.type("see @");
  vi.advanceTimersByTime(1);
  return view;
}

test("an at sign asks the extension at once, and what follows when the user pauses", () => {
  vi.useFakeTimers();
  const view = asking();
  for (const text of ["see @a", "see @a.", "see @a.p"]) view.type(text);
  vi.advanceTimersByTime(1000);
  expect(view.sent("complete").map(({ query }) => query)).toEqual(["", "a.p"]);
});

test("an answer to what was asked before is ignored", () => {
  vi.useFakeTimers();
  const view = asking();
  const first = view.sent("complete")[0]?.request ?? -1;
  view.type("see @a");
  vi.advanceTimersByTime(1000);
  view.complete([{ insert: "old", label: "old", detail: "" }], first);
  expect(options(view)).toEqual([]);
  view.complete([{ insert: "new", label: "new", detail: "" }]);
  expect(options(view)).toEqual(["new"]);
});

test("an answer that comes when nothing is completed any more opens no list", () => {
  vi.useFakeTimers();
  const view = asking();
  view.type("see");
  view.complete([{ insert: "old", label: "old", detail: "" }]);
  expect(options(view)).toEqual([]);
});

test("an entry with an attachment is put into the text and attached once", () => {
  vi.useFakeTimers();
  const attachment = { kind: "file", uri: "file:///w/a.py", label: "a.py" } as const;
  const view = new TestView();
  for (const text of ["@", "@a.py and @"]) {
    view.type(text);
    vi.advanceTimersByTime(1000);
    view.complete([{ insert: "a.py", label: "a.py", detail: "src", attachment }]);
    view.key("Enter");
  }
  view.key("Enter");
  expect(view.sent("send")).toEqual([{ type: "send", text: "@a.py and @a.py ", attachments: [attachment] }]);
});

test("the button to attach writes the at sign and asks", () => {
  vi.useFakeTimers();
  const view = new TestView();
  view.type("see");
  view.click(view.button("Attach files, the selection or problems"));
  vi.advanceTimersByTime(1);
  expect(view.box.value).toBe("see @");
  expect(view.sent("complete")).toHaveLength(1);
});
