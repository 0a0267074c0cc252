// @vitest-environment jsdom
import { expect, test } from "vitest";
import { card, scrolledTo, TestView, toolItem } from "./kit";

test("a card is updated in place", () => {
  const view = new TestView({ items: [toolItem("t1")], tools: [card("t1")] });
  const before = view.one(".card");
  expect(view.one(".card .status").textContent).toBe("running");
  view.patch({ tools: [card("t1", { title: "Read it", status: "completed", seconds: 72 })] });
  expect(view.one(".card")).toBe(before);
  expect(view.one(".card .title").textContent).toBe("Read it");
  expect(view.one(".card .seconds").textContent).toBe("1 min 12 s");
  expect(view.one(".card .status").textContent).toBe("done");
});

test.each([
  ["pending", "waiting"],
  ["in_progress", "running"],
  ["completed", "done"],
  ["failed", "failed"],
  ["cancelled", "cancelled"],
] as const)("the status %s is said as %s", (status, word) => {
  const view = new TestView({ items: [toolItem("t1")], tools: [card("t1", { status })] });
  expect(view.one(".card .status").textContent).toBe(word);
  expect(view.all(".card .spinner")).toHaveLength(status === "in_progress" ? 1 : 0);
});

test("a location is opened at its line, once the card is", () => {
  const locations = [
    { path: "/w/a.py", label: "a.py", line: 7 },
    { path: "/w/b.py", label: "b.py" },
  ];
  const view = new TestView({ items: [toolItem("t1")], tools: [card("t1", { locations })] });
  expect(view.all(".locations")).toEqual([]);
  view.click(view.one(".card .head"));
  for (const link of view.all(".locations .link")) view.click(link);
  expect(view.sent("openLocation")).toEqual([
    { type: "openLocation", path: "/w/a.py", line: 7 },
    { type: "openLocation", path: "/w/b.py" },
  ]);
});

test("a diff says what it changes and is opened by its number", () => {
  const content = [{ type: "diff", index: 3, label: "a.py", added: 4, removed: 2, isNew: false, lines: [" x", "-one", "+two"], more: 4 }] as const;
  const view = new TestView({ items: [toolItem("t1")], tools: [card("t1", { content })] });
  expect(view.one(".diff").textContent).toBe("a.py+4−2");
  expect(view.all(".changes")).toEqual([]);
  view.click(view.one(".card .head"));
  expect(view.all(".changes .line").map(({ className, textContent }) => `${className}:${textContent}`)).toEqual(["line : x", "line removed:-one", "line added:+two"]);
  expect(view.one(".changes").textContent).toContain("4 more lines in the diff");
  view.click(view.one(".diff"));
  expect(view.sent("openDiff")).toEqual([{ type: "openDiff", toolCallId: "t1", index: 3 }]);
});

test("a terminal shows its tail while it runs and is opened by its button", () => {
  const terminal = (tail: string) => ({ type: "terminal", terminalId: "x1", title: "make", tail }) as const;
  const view = new TestView({ items: [toolItem("t1")], tools: [card("t1", { kind: "execute", content: [terminal("one")] })] });
  expect(view.one(".terminal pre").textContent).toBe("one");
  view.patch({ tools: [card("t1", { kind: "execute", content: [terminal("one\ntwo")] })] });
  expect(view.one(".terminal pre").textContent).toBe("one\ntwo");
  view.click(view.button("Show terminal"));
  expect(view.sent("openTerminal")).toEqual([{ type: "openTerminal", terminalId: "x1" }]);
  view.patch({ tools: [card("t1", { kind: "execute", status: "completed", content: [{ ...terminal("one"), exit: "exit status 0" }] })] });
  expect(view.all(".terminal")).toEqual([]);
  expect(view.one(".card .exit").textContent).toBe("exit 0");
});

test("input and output are folded, and open by the head of the card", () => {
  const change = { input: '{"path": 1}', content: [{ type: "text", text: "**out**", truncated: true }] } as const;
  const view = new TestView({ items: [toolItem("t1")], tools: [card("t1", change)] });
  expect(view.all(".details")).toEqual([]);
  view.click(view.one(".card .head"));
  expect(view.one(".card .head").getAttribute("aria-expanded")).toBe("true");
  expect(view.one(".output strong").textContent).toBe("out");
  expect(view.one(".whole").textContent).toContain("Shortened here");
  view.click(view.button("Open the output in an editor"));
  expect(view.sent("openOutput")).toEqual([{ type: "openOutput", toolCallId: "t1" }]);
});

test("a call that failed shows its output by itself", () => {
  const content = [{ type: "text", text: "No such file", truncated: false }] as const;
  const view = new TestView({ items: [toolItem("t1")], tools: [card("t1", { status: "failed", content })] });
  expect(view.one(".output").textContent).toContain("No such file");
});

test("the calls of a sub-agent stand below its card, at every depth, and nowhere else", () => {
  const tools = [card("t1"), card("t2", { parentId: "t1" }), card("t3", { parentId: "t2" })];
  const view = new TestView({ items: ["t1", "t2", "t3"].map(toolItem), tools });
  expect(view.all(".card")).toHaveLength(3);
  expect(view.all("[data-tool=t1] > .children > [data-tool=t2] > .children > [data-tool=t3]")).toHaveLength(1);
});

test("a call without an item of its own is shown below its parent", () => {
  const view = new TestView({ items: [toolItem("t1")], tools: [card("t1")] });
  view.patch({ tools: [card("t2", { parentId: "t1" })] });
  expect(view.all("[data-tool=t1] [data-tool=t2]")).toHaveLength(1);
});

test("a call whose parent is not known stands by itself until it is", () => {
  const view = new TestView({ items: [toolItem("t2")], tools: [card("t2", { parentId: "t1" })] });
  expect(view.all("[data-tool=t2]")).toHaveLength(1);
  view.patch({ items: [{ op: "add", item: toolItem("t1") }], tools: [card("t1")] });
  expect(view.all("[data-tool=t2]")).toHaveLength(1);
  expect(view.all("[data-tool=t1] [data-tool=t2]")).toHaveLength(1);
});

test("the calls of a sub-agent that has finished are folded", () => {
  const view = new TestView({
    items: [toolItem("t1")],
    tools: [card("t1", { status: "completed" }), card("t2", { parentId: "t1" })],
  });
  expect(view.all("[data-tool=t2]")).toEqual([]);
  view.click(view.one(".children > .fold"));
  expect(view.all("[data-tool=t2]")).toHaveLength(1);
});

test("a card that is to be revealed is unfolded with all that is above it, and scrolled to", async () => {
  const tools = [
    card("t1", { status: "completed" }),
    card("t2", { parentId: "t1", status: "completed", input: "{}" }),
  ];
  const view = new TestView({ items: [toolItem("t1")], tools });
  view.tell({ type: "reveal", toolCallId: "t2" });
  await expect.poll(() => scrolledTo.at(-1)?.getAttribute("data-tool"), { timeout: 60_000 }).toBe("t2");
  expect(view.all("[data-tool=t2] .details")).toHaveLength(1);
});

test("a command that has ended says its exit status, a failed one in colour", () => {
  const view = new TestView({ items: [toolItem("t1")], tools: [card("t1", { kind: "execute", status: "completed", exitCode: 0 })] });
  expect(view.one(".card .exit").textContent).toBe("exit 0");
  view.patch({ tools: [card("t1", { kind: "execute", status: "failed", exitCode: 3 })] });
  expect(view.one(".card .exit.failed").textContent).toBe("exit 3");
});
