import type { ToolCallContent } from "@agentclientprotocol/sdk";
import { describe, expect, it } from "vitest";
import { aboutOf } from "../../../src/core/asked.js";
import type { CallRecord } from "../../../src/core/toolCalls.js";
import { ToolCalls } from "../../../src/core/toolCalls.js";

const WHY = "Asked because it deletes files.\n\nRisk: high (it deletes)";

function record(call: { title: string; kind?: "switch_mode"; rawInput?: unknown; content?: ToolCallContent[] }): CallRecord {
  return new ToolCalls().apply("s1", { toolCallId: "t1", ...call }, { turn: 1, replayed: false });
}

function text(said: string): ToolCallContent {
  return { type: "content", content: { type: "text", text: said } };
}

describe("what a question is about", () => {
  it("is the whole command, once, and apart from it why it is asked", () => {
    const command = Array.from({ length: 30 }, (_, line) => `echo ${String(line)}`).join("\n");
    const call = record({ title: command, rawInput: { command }, content: [text(`\`\`\`\n${command}\n\`\`\``), text(WHY)] });
    expect(aboutOf(call, { asked: { reason: "it deletes files; it leaves the folder", rule: "tools.policy.ask[0]" } }).more).toEqual(["it deletes files", "it leaves the folder", "Rule: tools.policy.ask[0]"]);
    expect(aboutOf(call, { asked: { reason: "it deletes files" } })).toEqual({
      text: command,
      diffs: [],
      why: ["Asked because it deletes files.", "Risk: high (it deletes)"],
      more: [],
      whole: true,
    });
  });

  it("is the command where the title is another, and no character of it is hidden", () => {
    expect(aboutOf(record({ title: "Run it", rawInput: { command: "rm x\u001b[2K\u202e" } }), undefined).text).toBe("rm x\\x1b[2K\\u202e");
    expect(aboutOf(record({ title: "Run it", rawInput: { command: ["sh", "-c", "rm -rf ~"] } }), undefined).text).toBe("sh -c 'rm -rf ~'");
  });

  it("is a plan once, and what else its call would do", () => {
    const plan = "# Plan\n\n1. Write it";
    const call = record({ title: "Plan", kind: "switch_mode", rawInput: { plan: `${plan}\n`, mode: "auto" }, content: [text(plan)] });
    expect(aboutOf(call, undefined).text).toBe(`Plan\n\n${plan}\n\nmode: auto`);
    expect(aboutOf({ ...call, rawInput: { plan: "Another" } }, undefined).text).toContain("plan: Another");
  });

  it("is all of a change", () => {
    const content: ToolCallContent[] = [{ type: "diff", path: "/w/a.py", oldText: "one\n", newText: "two\n" }, text(WHY)];
    const about = aboutOf(record({ title: "Edit a.py", rawInput: { path: "a.py" }, content }), { asked: {} }, "/w");
    expect(about).toMatchObject({ text: "", diffs: [{ label: "a.py", path: "/w/a.py", lines: ["-one", "+two"] }] });
    expect(about.why).toHaveLength(2);
  });

  it("names a file outside of the folder by its whole path, with all characters of it", () => {
    const labels = ["/w/b/a.py", "/home/me/a.py", "/w/../home/a.py", "/w/a\u202eyp.exe"].map((path) => aboutOf(record({ title: "Edit", content: [{ type: "diff", path, newText: "x" }] }), undefined, "/w").diffs[0]?.label);
    expect(labels).toEqual(["b/a.py", "/home/me/a.py", "/w/../home/a.py", "a\\u202eyp.exe"]);
  });

  it("is everything that another agent says, and the input of a call that says nothing else", () => {
    expect(aboutOf(record({ title: "Plan", content: [text("First this.\n\nThen that.")] }), undefined)).toMatchObject({ text: "Plan\n\nFirst this.\n\nThen that.", why: [] });
    expect(aboutOf(record({ title: "Call x", rawInput: { to: "a", n: 1 } }), undefined).text).toContain('"to": "a"');
    expect(aboutOf(record({ title: "Fetch https://a.b", rawInput: { url: "https://a.b" } }), undefined).text).toBe("Fetch https://a.b");
  });

  it("is not whole where it is too long to be read", () => {
    expect(aboutOf(record({ title: "Run it", rawInput: { command: "a".repeat(2_000_000) } }), undefined).whole).toBe(false);
  });
});
