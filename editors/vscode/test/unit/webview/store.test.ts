import { expect, test } from "vitest";
import type { ToView } from "../../../src/core/messages";
import { Store, type Topic } from "../../../src/webview/store";
import type { ChatState, ToolCard } from "../../../src/core/messages";

const STATE: ChatState = {
  agent: { status: "ready", name: "acp-coder" },
  problem: null,
  start: null,
  session: { id: "s1", title: "" },
  loading: false,
  running: false,
  stopping: false,
  plan: [],
  planOf: { turn: 0, runs: false },
  usage: null,
  commands: [],
  pickers: [],
  permissions: [],
  waiting: 0,
  form: null,
  queue: [],
  prompts: { of: {}, fork: false, redo: false },
  changes: [],
  images: false,
  may: { prompt: true, answer: true },
  items: [
    { id: "a", type: "agent", text: "One" },
    { id: "b", type: "agent", text: "Two" },
  ],
  tools: [],
};

function card(toolCallId: string, parentId?: string): ToolCard {
  const plain = { toolCallId, title: toolCallId, kind: "read", status: "pending", locations: [], content: [] } as const;
  return parentId === undefined ? plain : { ...plain, parentId };
}

function patch(change: Partial<Extract<ToView, { type: "patch" }>>): Extract<ToView, { type: "patch" }> {
  return { type: "patch", facts: {}, items: [], tools: [], ...change };
}

function heard(store: Store, ...topics: Topic[]): Topic[] {
  const told: Topic[] = [];
  for (const topic of topics) store.subscribe(topic, () => told.push(topic));
  return told;
}

function inHand(): { store: Store; frame: () => number } {
  const frames: (() => void)[] = [];
  const store = new Store((run) => frames.push(run));
  const frame = (): number => {
    const due = frames.splice(0);
    for (const run of due) run();
    return due.length;
  };
  store.replace(STATE);
  frame();
  return { store, frame };
}

test("a delta is told to the item it belongs to and to no other", () => {
  const { store, frame } = inHand();
  const told = heard(store, "item:a", "item:b", "items", "fact:running");
  store.patch(patch({ items: [{ op: "append", id: "a", text: " more" }] }));
  frame();
  expect(told).toEqual(["item:a"]);
  expect(store.item("a")).toMatchObject({ text: "One more" });
});

test("many patches within a frame are told once", () => {
  const { store, frame } = inHand();
  const told = heard(store, "item:a");
  for (let count = 0; count < 2000; count += 1) store.patch(patch({ items: [{ op: "append", id: "a", text: "x" }] }));
  expect(told).toEqual([]);
  expect(frame()).toBe(1);
  expect(told).toEqual(["item:a"]);
  expect(store.item("a")).toMatchObject({ text: `One${"x".repeat(2000)}` });
});

test("text for an item that is not there changes nothing", () => {
  const { store, frame } = inHand();
  store.patch(patch({ items: [{ op: "append", id: "gone", text: "x" }] }));
  expect(frame()).toBe(0);
});

test("only the facts that changed are told", () => {
  const { store, frame } = inHand();
  const told = heard(store, "fact:running", "fact:plan", "fact:queue");
  store.patch(patch({ facts: { running: true, queue: STATE.queue } }));
  frame();
  expect(told).toEqual(["fact:running"]);
});

test("a new item leaves the runs before the last one as they are", () => {
  const { store } = inHand();
  for (let count = 0; count < 100; count += 1) {
    store.patch(patch({ items: [{ op: "add", item: { id: `n${count}`, type: "agent", text: "" } }] }));
  }
  const before = store.chunks;
  store.patch(patch({ items: [{ op: "add", item: { id: "last", type: "agent", text: "" } }] }));
  expect(store.chunks.slice(0, -1)).toEqual(before.slice(0, -1));
  expect(store.chunks[0]).toBe(before[0]);
  expect(store.chunks.flat()).toHaveLength(103);
  expect(store.lastItem()?.id).toBe("last");
});

test("an item that is added again is replaced where it stands", () => {
  const { store } = inHand();
  store.patch(patch({ items: [{ op: "add", item: { id: "a", type: "agent", text: "Anew" } }] }));
  expect(store.chunks.flat()).toEqual(["a", "b"]);
  expect(store.item("a")).toMatchObject({ text: "Anew" });
});

test("a card that is told again is not a second child of its parent", () => {
  const { store } = inHand();
  store.patch(patch({ tools: [card("child", "parent"), card("child", "parent"), card("parent")] }));
  expect(store.children("parent")).toEqual(["child"]);
});

test("a card that changes keeps its place among its parent's calls", () => {
  const { store } = inHand();
  store.patch(patch({ tools: [card("one", "parent"), card("two", "parent")] }));
  store.patch(patch({ tools: [{ ...card("one", "parent"), status: "completed" }] }));
  expect(store.children("parent")).toEqual(["one", "two"]);
});

test("a card whose parent is told late moves below it", () => {
  const { store, frame } = inHand();
  store.patch(patch({ tools: [card("child")] }));
  frame();
  const told = heard(store, "tool:parent");
  store.patch(patch({ tools: [card("child", "parent")] }));
  frame();
  expect(told).toEqual(["tool:parent"]);
  expect(store.children("parent")).toEqual(["child"]);
});

test("a new state leaves nothing of the one before", () => {
  const { store, frame } = inHand();
  store.patch(patch({ tools: [card("child", "parent")], facts: { running: true } }));
  const told = heard(store, "item:a", "tool:child");
  store.replace({ ...STATE, items: [{ id: "c", type: "agent", text: "Three" }] });
  frame();
  expect(told.sort()).toEqual(["item:a", "tool:child"]);
  expect([...store.allItems()].map(({ id }) => id)).toEqual(["c"]);
  expect(store.item("a")).toBeUndefined();
  expect(store.tool("child")).toBeUndefined();
  expect(store.children("parent")).toEqual([]);
  expect(store.facts.running).toBe(false);
});

test("who has ended the subscription hears nothing", () => {
  const { store, frame } = inHand();
  const told: string[] = [];
  const end = store.subscribe("item:a", () => told.push("a"));
  end();
  store.patch(patch({ items: [{ op: "append", id: "a", text: "x" }] }));
  frame();
  expect(told).toEqual([]);
});
