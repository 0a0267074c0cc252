import type { SessionUpdate } from "@agentclientprotocol/sdk";
import { describe, expect, it } from "vitest";
import { Transcript } from "../../../src/core/transcript.js";

const TOP = (): boolean => false;
const say = (text: string, messageId?: string): SessionUpdate => ({
  sessionUpdate: "agent_message_chunk",
  content: { type: "text", text },
  ...(messageId === undefined ? {} : { messageId }),
});
const think = (text: string): SessionUpdate => ({ sessionUpdate: "agent_thought_chunk", content: { type: "text", text } });
const call = (toolCallId: string): SessionUpdate => ({ sessionUpdate: "tool_call", toolCallId, title: "t" });

function shown(transcript: Transcript): string[] {
  return transcript.items.map((item) => ("text" in item ? `${item.type}: ${item.text}` : item.type === "tool" ? `tool ${item.toolCallId}` : item.type));
}

describe("the conversation", () => {
  it("joins chunks of a message and tells only what is new", () => {
    const transcript = new Transcript();
    transcript.apply(say("Hel"), TOP);
    expect(transcript.apply(say("lo"), TOP).items).toEqual([{ op: "append", id: "1", text: "lo" }]);
    expect(shown(transcript)).toEqual(["agent: Hello"]);
  });

  it("begins a new message with a new id, after a tool call and after a thought", () => {
    const transcript = new Transcript();
    for (const update of [say("a", "m1"), say("b", "m1"), say("c", "m2"), call("1"), say("d", "m2"), think("e"), say("f")]) {
      transcript.apply(update, TOP);
    }
    expect(shown(transcript)).toEqual(["agent: ab", "agent: c", "tool 1", "agent: d", "thought: e", "agent: f"]);
  });

  it("shows a tool call once, where it was announced, and a nested one not at all", () => {
    const transcript = new Transcript();
    transcript.apply(call("1"), TOP);
    transcript.apply({ sessionUpdate: "tool_call_update", toolCallId: "1", status: "completed" }, TOP);
    transcript.apply(call("2"), () => true);
    expect(shown(transcript)).toEqual(["tool 1"]);
  });

  it("puts a replayed prompt together from its pieces, attachments included", () => {
    const transcript = new Transcript();
    const piece = (content: object): SessionUpdate => ({ sessionUpdate: "user_message_chunk", messageId: "u1", content }) as SessionUpdate;
    transcript.apply(piece({ type: "text", text: "Look at " }), TOP);
    transcript.apply(piece({ type: "resource_link", name: "a.py", uri: "file:///p/a.py" }), TOP);
    transcript.apply(piece({ type: "text", text: "this" }), TOP);
    expect(transcript.items).toEqual([
      { id: "1", type: "user", text: "Look at this", attachments: [{ kind: "file", label: "a.py", uri: "file:///p/a.py" }], messageId: "u1" },
    ]);
  });

  it("takes the title from the first prompt until the agent gives one", () => {
    const transcript = new Transcript();
    transcript.user([{ type: "text", text: "Fix the bug" }]);
    expect(transcript.title).toBe("Fix the bug");
    transcript.apply({ sessionUpdate: "session_info_update", title: "Bug fixed" }, TOP);
    transcript.apply({ sessionUpdate: "session_info_update", updatedAt: "2026-01-01T00:00:00Z" }, TOP);
    expect(transcript.title).toBe("Bug fixed");
  });

  it("keeps plan, usage, commands, mode and options as the agent said them last", () => {
    const transcript = new Transcript();
    transcript.modes = { currentModeId: "code", availableModes: [] };
    transcript.apply({ sessionUpdate: "plan", entries: [{ content: "a", priority: "high", status: "pending" }] }, TOP);
    transcript.apply({ sessionUpdate: "plan", entries: [{ content: "a", priority: "high", status: "completed" }] }, TOP);
    transcript.apply({ sessionUpdate: "usage_update", used: 5, size: 10, cost: { amount: 0.5, currency: "EUR" } }, TOP);
    transcript.apply({ sessionUpdate: "current_mode_update", currentModeId: "ask" }, TOP);
    expect(transcript.plan).toEqual([{ content: "a", priority: "high", status: "completed" }]);
    expect(transcript.usage).toEqual({ used: 5, size: 10, cost: { amount: 0.5, currency: "EUR" } });
    expect(transcript.modes.currentModeId).toBe("ask");
  });

  it("tells of a compaction when it is over, and is not troubled by updates of a newer protocol", () => {
    const transcript = new Transcript();
    transcript.apply({ sessionUpdate: "compaction_update", compactionId: "c", status: "in_progress" }, TOP);
    transcript.apply({ sessionUpdate: "compaction_update", compactionId: "c", status: "completed" }, TOP);
    transcript.apply({ sessionUpdate: "hologram" } as never, TOP);
    expect(transcript.items).toHaveLength(1);
    expect(transcript.items[0]).toMatchObject({ type: "notice", severity: "info" });
  });
});
