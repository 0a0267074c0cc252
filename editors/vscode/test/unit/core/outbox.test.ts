import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { ToView } from "../../../src/core/messages.js";
import { Outbox } from "../../../src/chat/outbox.js";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function made(): { outbox: Outbox; posted: ToView[] } {
  const posted: ToView[] = [];
  const outbox = new Outbox({
    facts: (keys) => Object.fromEntries([...keys].map((key) => [key, true])),
    tool: (toolCallId) => (toolCallId === "gone" ? undefined : { toolCallId, title: "t", kind: "other", status: "pending", locations: [], content: [] }),
    post: (message) => posted.push(message),
  });
  return { outbox, posted };
}

it("sends 2,000 deltas of a frame as one text, and a call that changed often once", () => {
  const { outbox, posted } = made();
  outbox.item({ op: "add", item: { id: "1", type: "agent", text: "" } });
  for (let index = 0; index < 2000; index += 1) {
    outbox.item({ op: "append", id: "1", text: "x" });
    outbox.tool("c");
    outbox.fact("running");
  }
  expect(posted).toEqual([]);
  vi.runAllTimers();
  expect(posted).toHaveLength(1);
  expect(posted[0]).toMatchObject({ facts: { running: true }, items: [{ op: "add" }, { op: "append", text: "x".repeat(2000) }], tools: [{ toolCallId: "c" }] });
});

it("keeps the order of what is not the same message", () => {
  const { outbox, posted } = made();
  for (const id of ["1", "2", "1"]) {
    outbox.item({ op: "append", id, text: id });
  }
  outbox.flush();
  expect(posted[0]).toMatchObject({ items: [{ id: "1" }, { id: "2" }, { id: "1" }] });
});

it("sends nothing where nothing changed, and nothing after it was cleared", () => {
  const { outbox, posted } = made();
  outbox.flush();
  outbox.tool("c");
  outbox.clear();
  vi.runAllTimers();
  expect(posted).toEqual([]);
});
