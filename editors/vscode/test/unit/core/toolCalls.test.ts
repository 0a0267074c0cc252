import { describe, expect, it } from "vitest";
import type { CallChange } from "../../../src/core/toolCalls.js";
import { ToolCalls } from "../../../src/core/toolCalls.js";

const LIVE = { turn: 1, replayed: false };

function calls(): { calls: ToolCalls; changes: CallChange[]; clock: { now: number } } {
  const clock = { now: 1000 };
  const made = new ToolCalls(() => clock.now);
  const changes: CallChange[] = [];
  made.changed.on((change) => changes.push(change));
  return { calls: made, changes, clock };
}

describe("tool calls", () => {
  it("keeps what an update does not name", () => {
    const { calls: made } = calls();
    made.apply("s", { toolCallId: "1", title: "Read a", kind: "read", locations: [{ path: "/a" }], rawInput: { path: "a" } }, LIVE);
    const record = made.apply("s", { toolCallId: "1", status: "completed", title: null, content: null }, LIVE);
    expect(record).toMatchObject({ title: "Read a", kind: "read", status: "completed", locations: [{ path: "/a" }], rawInput: { path: "a" } });
  });

  it("replaces content and locations whole", () => {
    const { calls: made } = calls();
    const text = (words: string) => ({ type: "content" as const, content: { type: "text" as const, text: words } });
    made.apply("s", { toolCallId: "1", title: "t", content: [text("a"), text("b")], locations: [{ path: "/a" }] }, LIVE);
    const record = made.apply("s", { toolCallId: "1", content: [text("c")], locations: [] }, LIVE);
    expect(record.content).toEqual([text("c")]);
    expect(record.locations).toEqual([]);
  });

  it("never goes back from an end, nor from running to waiting", () => {
    const { calls: made } = calls();
    made.apply("s", { toolCallId: "1", title: "t", status: "in_progress" }, LIVE);
    expect(made.apply("s", { toolCallId: "1", status: "pending" }, LIVE).status).toBe("in_progress");
    made.apply("s", { toolCallId: "1", status: "completed" }, LIVE);
    expect(made.apply("s", { toolCallId: "1", status: "in_progress" }, LIVE).status).toBe("completed");
  });

  it("makes a call known by an update that came before its announcement", () => {
    const { calls: made } = calls();
    made.apply("s", { toolCallId: "1", status: "in_progress" }, LIVE);
    expect(made.apply("s", { toolCallId: "1", title: "Late", kind: "execute" }, LIVE)).toMatchObject({ title: "Late", status: "in_progress", kind: "execute" });
    expect(made.list("s")).toHaveLength(1);
  });

  it("measures from the moment it runs to its end, and no further", () => {
    const { calls: made, clock } = calls();
    made.apply("s", { toolCallId: "1", title: "t" }, LIVE);
    clock.now = 5000; // the user thought about it
    made.apply("s", { toolCallId: "1", status: "in_progress" }, LIVE);
    clock.now = 5400;
    made.apply("s", { toolCallId: "1", status: "completed" }, LIVE);
    clock.now = 9000;
    const record = made.apply("s", { toolCallId: "1", title: "renamed" }, LIVE);
    expect([record.startedAt, record.endedAt]).toEqual([5000, 5400]);
  });

  it("ends what a cancelled turn left open, and believes the agent that says how it ended", () => {
    const { calls: made } = calls();
    made.apply("s", { toolCallId: "1", title: "t", status: "in_progress" }, LIVE);
    made.apply("s", { toolCallId: "2", title: "t", status: "completed" }, LIVE);
    made.apply("other", { toolCallId: "1", title: "t", status: "in_progress" }, LIVE);
    made.endOpen("s", "cancelled");
    expect(made.list("s").map(({ status }) => status)).toEqual(["cancelled", "completed"]);
    expect(made.get("other", "1")?.status).toBe("in_progress");
    expect(made.apply("s", { toolCallId: "1", status: "failed" }, LIVE).status).toBe("failed");
  });

  it("does not say that a call failed which the user has refused", () => {
    const { calls: made } = calls();
    made.apply("s", { toolCallId: "1", title: "t" }, LIVE);
    expect(made.apply("s", { toolCallId: "1", status: "failed" }, { ...LIVE, declined: true }).status).toBe("cancelled");
    expect(made.apply("s", { toolCallId: "2", title: "t", status: "completed" }, { ...LIVE, declined: true }).status).toBe("completed");
  });

  it("keeps equal ids of different sessions apart", () => {
    const { calls: made } = calls();
    made.apply("a", { toolCallId: "1", title: "of a" }, LIVE);
    made.apply("b", { toolCallId: "1", title: "of b" }, LIVE);
    made.forget("a");
    expect(made.get("a", "1")).toBeUndefined();
    expect(made.get("b", "1")?.title).toBe("of b");
  });

  it("reads the parent of a sub-agent's call, but never itself", () => {
    const { calls: made } = calls();
    const meta = (parent: string) => ({ claudeCode: { parentToolUseId: parent } });
    expect(made.apply("s", { toolCallId: "2", title: "t", _meta: meta("1") }, LIVE).parentId).toBe("1");
    expect(made.apply("s", { toolCallId: "3", title: "t", _meta: meta("3") }, LIVE).parentId).toBeUndefined();
    expect(made.apply("s", { toolCallId: "2", status: "completed" }, LIVE).parentId).toBe("1");
  });

  it("does not let two calls be each other's parents", () => {
    const { calls: made } = calls();
    const below = (parent: string) => ({ claudeCode: { parentToolUseId: parent } });
    made.apply("s", { toolCallId: "1", title: "t", _meta: below("3") }, LIVE);
    made.apply("s", { toolCallId: "2", title: "t", _meta: below("1") }, LIVE);
    expect(made.apply("s", { toolCallId: "3", title: "t", _meta: below("2") }, LIVE).parentId).toBeUndefined();
    expect(made.get("s", "1")?.parentId).toBe("3");
  });

  it("tells a listener what was before, and goes on when one throws", () => {
    const { calls: made, changes } = calls();
    made.changed.on(() => {
      throw new Error("broken view");
    });
    made.apply("s", { toolCallId: "1", title: "a" }, LIVE);
    made.apply("s", { toolCallId: "1", title: "b" }, LIVE);
    expect(changes.map(({ before, record }) => [before?.title, record.title])).toEqual([
      [undefined, "a"],
      ["a", "b"],
    ]);
  });

  it("takes kinds and states it does not know for what they can only be", () => {
    const { calls: made } = calls();
    const odd = { toolCallId: "1", title: "t", kind: "teleport", status: "dreaming" } as never;
    expect(made.apply("s", odd, LIVE)).toMatchObject({ kind: "other", status: "pending" });
  });

  it("is right after 2,000 updates of 200 calls in mixed order", () => {
    const { calls: made } = calls();
    for (let round = 0; round < 10; round += 1) {
      for (let index = 0; index < 200; index += 1) {
        const id = (index * 7919) % 200;
        made.apply("s", { toolCallId: String(id), title: `call ${String(id)}`, status: round < 5 ? "in_progress" : "completed" }, LIVE);
      }
    }
    expect(made.list("s")).toHaveLength(200);
    expect(made.running()).toEqual([]);
  });
});
