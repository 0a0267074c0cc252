// @vitest-environment jsdom
import { expect, test } from "vitest";
import type { Permission } from "../../../src/core/messages";
import { card, TestView, toolItem } from "./kit";

const PERMISSION: Permission = {
  id: "p",
  toolCallId: "t",
  title: "Write",
  options: [{ optionId: "yes", name: "Allow", kind: "allow_once" }],
  hasDiff: true,
  about: { text: "", diffs: [{ label: "a.txt", path: "/w/a.txt", lines: ["+one"] }], why: [], more: [], whole: true },
  seen: true,
};

test("in a browser nothing offers to open an editor", () => {
  const shown = card("t", {
    kind: "execute",
    status: "completed",
    seconds: 1,
    locations: [{ path: "/w/a.txt", label: "a.txt", line: 3 }],
    content: [{ type: "text", text: "**plain**\u001b[31m red\u001b[0m", truncated: false }],
  });
  const view = new TestView({ items: [toolItem("t")], tools: [shown], permissions: [PERMISSION] }, undefined, false);
  expect(view.all(".locations button, .terminal .link, .whole .link, [title*=editor]")).toEqual([]);
  expect(view.one(".locations").textContent).toContain("a.txt:3");
  expect(view.one(".output pre").textContent).toBe("**plain** red");
  expect(view.all("button").map(({ textContent }) => textContent)).not.toContain("Show the diff");
  expect(view.button("Attach pictures").disabled).toBe(false);
});

test("the output of a command stands open while it runs and after it, and is folded in a session that was loaded", () => {
  const command = card("t", { kind: "execute", content: [{ type: "text", text: "one", truncated: false }] });
  const view = new TestView({ items: [toolItem("t")], tools: [command] }, undefined, false);
  expect(view.one(".output").textContent).toBe("one");
  view.patch({ tools: [{ ...command, status: "completed", seconds: 2 }] });
  expect(view.one(".output").textContent).toBe("one");
  const loaded = new TestView({ items: [toolItem("t")], tools: [{ ...command, status: "completed" }] }, undefined, false);
  expect(loaded.all(".output")).toEqual([]);
});

test("who may only answer has no box, but can stop; who may only watch can do neither", () => {
  const view = new TestView({ running: true, permissions: [PERMISSION], may: { prompt: false, answer: true } });
  expect(view.all("textarea")).toEqual([]);
  view.click(view.button("Allow"));
  expect(view.sent("permission")).toEqual([{ type: "permission", id: "p", optionId: "yes" }]);
  view.click(view.button("Stop"));
  expect(view.sent("stop")).toHaveLength(1);
  const watching = new TestView({ running: true, permissions: [PERMISSION], may: { prompt: false, answer: false } });
  expect(watching.all(".question .option, textarea, .stop")).toEqual([]);
  expect(watching.one(".question").textContent).toContain("Waiting for somebody who may answer");
});

test("without a session there is nothing to write in, and with the first one the box gets the cursor", () => {
  const view = new TestView({ session: null }, undefined, false);
  expect(view.all("textarea")).toEqual([]);
  view.tell({ type: "focus" });
  view.patch({ facts: { session: { id: "s", title: "" } } });
  view.frame();
  expect(document.activeElement).toBe(view.box);
});
