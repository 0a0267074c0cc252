import type { ElicitationSchema, SessionConfigOption } from "@agentclientprotocol/sdk";
import { describe, expect, it } from "vitest";
import { cardOf, outputOf } from "../../../src/core/cards.js";
import type { Places } from "../../../src/core/find.js";
import { findAgent } from "../../../src/core/find.js";
import { fieldsOf, tapOf } from "../../../src/core/forms.js";
import { Marks } from "../../../src/core/marks.js";
import { MODES, pickersOf } from "../../../src/core/pickers.js";
import type { CallRecord } from "../../../src/core/toolCalls.js";
import { ToolCalls } from "../../../src/core/toolCalls.js";

function places(executables: readonly string[], more: Partial<Places> = {}): Places {
  return {
    isExecutable: (path) => Promise.resolve(executables.includes(path)),
    environment: { PATH: "/usr/bin:/opt/bin" },
    platform: "linux",
    folders: ["/work"],
    home: "/home/me",
    ...more,
  };
}

const UNSET = { uvx: true, command: "", args: ["--x"] };

describe("where the agent is", () => {
  it("is on PATH before the workspace's environment, and there before uvx", async () => {
    const all = ["/opt/bin/acp-coder", "/work/.venv/bin/acp-coder", "/usr/bin/uvx"];
    expect(await findAgent(UNSET, places(all))).toMatchObject({ command: "/opt/bin/acp-coder", origin: "PATH" });
    expect(await findAgent(UNSET, places(all.slice(1)))).toMatchObject({ command: "/work/.venv/bin/acp-coder", args: ["--x"] });
    expect(await findAgent(UNSET, places(all.slice(2)))).toMatchObject({ command: "/usr/bin/uvx", args: ["acp-coder", "--x"] });
  });

  it("says where it looked when it is nowhere", async () => {
    const found = await findAgent(UNSET, places([]));
    expect(found).toMatchObject({ looked: expect.arrayContaining(["/work/.venv/bin/acp-coder", "uvx on PATH"]) as unknown });
    expect(found).not.toHaveProperty("wrongSetting");
  });

  it("is fetched by uvx only where the user wants that", async () => {
    const found = await findAgent({ ...UNSET, uvx: false }, places(["/usr/bin/uvx"]));
    expect(found).toMatchObject({ uvx: true });
    expect(found).not.toHaveProperty("command");
  });

  it("is what the setting names, and nothing else where that is wrong", async () => {
    const other = places(["/opt/bin/other", "/usr/bin/acp-coder", "/work/tools/agent", "/home/me/agent"]);
    expect(await findAgent({ uvx: false, command: "other", args: [] }, other)).toMatchObject({ command: "/opt/bin/other" });
    expect(await findAgent({ uvx: false, command: "tools/agent", args: [] }, other)).toMatchObject({ command: "/work/tools/agent" });
    expect(await findAgent({ uvx: false, command: "~/agent", args: [] }, other)).toMatchObject({ command: "/home/me/agent" });
    expect(await findAgent({ uvx: false, command: "${workspaceFolder}/tools/agent", args: [] }, other)).toMatchObject({ command: "/work/tools/agent" });
    expect(await findAgent({ uvx: false, command: "missing", args: [] }, other)).toEqual({ looked: ["missing"], wrongSetting: "missing" });
  });

  it("has an ending on Windows", async () => {
    const windows = places(["C:\\work\\.venv\\Scripts\\acp-coder.exe"], { platform: "win32", folders: ["C:\\work"], environment: { Path: "C:\\bin" } });
    expect(await findAgent(UNSET, windows)).toMatchObject({ command: "C:\\work\\.venv\\Scripts\\acp-coder.exe" });
  });
});

describe("pickers", () => {
  const mode: SessionConfigOption = {
    type: "select",
    id: "mode",
    name: "Mode",
    category: "mode",
    currentValue: "code",
    options: [{ value: "code", name: "Code" }],
  };
  const modes = { currentModeId: "code", availableModes: [{ id: "code", name: "Code", description: "writes" }] };

  it("come from config options, and from modes only where no option is a mode", () => {
    expect(pickersOf([mode], modes).map(({ id }) => id)).toEqual(["mode"]);
    const model: SessionConfigOption = { ...mode, id: "model", category: "model" };
    expect(pickersOf([model], modes).map(({ id }) => id)).toEqual([MODES, "model"]);
    expect(pickersOf([], null)).toEqual([]);
  });

  it("flatten groups and know switches", () => {
    const grouped: SessionConfigOption = { ...mode, options: [{ group: "g", name: "Fast", options: [{ value: "a", name: "A" }] }] };
    expect(pickersOf([grouped], null)[0]?.choices).toEqual([{ value: "a", name: "A", group: "Fast" }]);
    const flag: SessionConfigOption = { type: "boolean", id: "web", name: "Web", currentValue: true };
    expect(pickersOf([flag], null)[0]).toMatchObject({ value: true, choices: [] });
  });
});

describe("forms", () => {
  const schema: ElicitationSchema = {
    type: "object",
    required: ["name", "count"],
    properties: {
      name: { type: "string", title: "Your name", minLength: 2, maxLength: 4 },
      mail: { type: "string", format: "email" },
      count: { type: "integer", minimum: 1, maximum: 9 },
      size: { type: "string", oneOf: [{ const: "s", title: "Small" }] },
      sure: { type: "boolean", default: true },
      tags: { type: "array", minItems: 1, items: { type: "string", enum: ["a", "b"] } },
    },
  };
  const fields = fieldsOf(schema);
  const check = (key: string, text: string): string | undefined => {
    const input = fields.find((field) => field.key === key)?.input;
    return input?.type === "text" ? input.check(text) : "not a text";
  };

  it("keep the order, titles and choices of the agent", () => {
    expect(fields.map(({ key, title, input }) => [key, title, input.type])).toEqual([
      ["name", "Your name", "text"],
      ["mail", "mail", "text"],
      ["count", "count", "text"],
      ["size", "size", "one"],
      ["sure", "sure", "one"],
      ["tags", "tags", "many"],
    ]);
    expect(fields[3]?.input).toMatchObject({ choices: [{ value: "s", label: "Small" }, { label: "(no answer)" }] });
    expect(fields[4]?.input).toMatchObject({ initial: true });
    expect(fields[5]?.input).toMatchObject({ least: 1, most: 2 });
  });

  it("say what is wrong with an answer", () => {
    expect(check("name", "a")).toBe("At least 2 characters.");
    expect(check("name", "😀😀😀😀")).toBeUndefined();
    expect(check("name", "")).toBe("An answer is needed.");
    expect(check("mail", "")).toBeUndefined();
    expect(check("mail", "nobody")).toBe("Expected an e-mail address.");
    expect(check("count", "1.5")).toBe("A whole number is needed.");
    expect(check("count", "0")).toBe("At least 1.");
    expect(check("count", "")).toBe("A number is needed.");
    expect(check("count", "3")).toBeUndefined();
  });

  it("refuse a kind of field that is not ACP's", () => {
    expect(() => fieldsOf({ properties: { x: { type: "hologram" } } })).toThrow("hologram");
  });
});

describe("marks", () => {
  const made = (more: object): CallRecord => new ToolCalls(() => 0).apply("s", { toolCallId: "1", title: "t", ...more }, { turn: 1, replayed: false });

  it("stand at the lines of the locations, the first where there is none", () => {
    const marks = new Marks();
    marks.update(made({ locations: [{ path: "/a", line: 5 }, { path: "/a", line: 5 }, { path: "/b" }] }));
    expect(marks.of("/a").map(({ line }) => line)).toEqual([4]);
    expect(marks.of("/b").map(({ line }) => line)).toEqual([0]);
  });

  it("move with the text, also when the agent says the same line again", () => {
    const marks = new Marks();
    const record = made({ locations: [{ path: "/a", line: 5 }] });
    marks.update(record);
    marks.edited("/a", [{ startLine: 0, endLine: 0, newBreaks: 2, atLineStart: true }]);
    marks.update({ ...record, status: "completed" });
    expect(marks.of("/a").map(({ line, record: { status } }) => [line, status])).toEqual([[6, "completed"]]);
  });

  it("stand where a call that has ended says, though its own edit has moved them", () => {
    const marks = new Marks();
    const record = made({ kind: "edit", locations: [{ path: "/a", line: 4 }, { path: "/a", line: 9 }] });
    marks.update(record);
    marks.edited("/a", [{ startLine: 3, endLine: 3, newBreaks: 2, atLineStart: true }]);
    const ended = { ...record, status: "completed" as const, locations: [{ path: "/a", line: 4 }, { path: "/a", line: 11 }] };
    marks.update(ended);
    expect(marks.of("/a").map(({ line }) => line)).toEqual([3, 10]);
    marks.edited("/a", [{ startLine: 0, endLine: 0, newBreaks: 1, atLineStart: true }]);
    marks.update({ ...ended, title: "again" });
    expect(marks.of("/a").map(({ line }) => line)).toEqual([4, 11]);
  });

  it("are one for each file of a search, however many lines it found", () => {
    const marks = new Marks();
    const locations = Array.from({ length: 50 }, (_, at) => ({ path: at < 40 ? "/a" : "/b", line: at + 1 }));
    marks.update(made({ kind: "search", locations }));
    expect(marks.of("/a").map(({ line }) => line)).toEqual([0]);
    expect(marks.of("/b").map(({ line }) => line)).toEqual([40]);
  });

  it("follow a call to another place, and tell which files are to be drawn anew", () => {
    const marks = new Marks();
    const record = made({ locations: [{ path: "/a", line: 5 }] });
    marks.update(record);
    expect(marks.update({ ...record, locations: [{ path: "/b", line: 1 }] })).toEqual(new Set(["/a", "/b"]));
    expect(marks.of("/a")).toEqual([]);
  });

  it("are not made of replayed calls, and go when they are over and a new prompt begins", () => {
    const marks = new Marks();
    const record = made({ locations: [{ path: "/a", line: 5 }], status: "in_progress" });
    marks.update({ ...record, replayed: true });
    expect(marks.of("/a")).toEqual([]);
    marks.update(record);
    marks.clear();
    expect(marks.of("/a")).toHaveLength(1);
    marks.update({ ...record, status: "completed" });
    marks.clear(({ turn }) => turn < 2);
    expect(marks.of("/a")).toEqual([]);
  });
});

describe("cards", () => {
  const record = (more: object): CallRecord => new ToolCalls(() => 0).apply("s", { toolCallId: "1", title: "Do", ...more }, { turn: 1, replayed: false });

  it("hold each kind of content, bounded", () => {
    const content = [
      { type: "content", content: { type: "text", text: "x".repeat(30_000) } },
      { type: "diff", path: "/p/a.py", oldText: "a\n", newText: "a\nb\n" },
      { type: "diff", path: "/p/new.py", newText: "a\n" },
      { type: "terminal", terminalId: "t1" },
      { type: "terminal", terminalId: "gone" },
    ];
    const card = cardOf(record({ content, rawInput: { a: 1 } }), (id) => (id === "t1" ? { title: "ls", tail: "a.py", exit: "exit status 0" } : undefined));
    expect(card.content).toEqual([
      { type: "text", text: "x".repeat(20_000), truncated: true },
      { type: "diff", index: 1, label: "a.py", added: 1, removed: 0, isNew: false, lines: [" a", "+b"], more: 0 },
      { type: "diff", index: 2, label: "new.py", added: 1, removed: 0, isNew: true, lines: ["+a"], more: 0 },
      { type: "terminal", terminalId: "t1", title: "ls", tail: "a.py", exit: "exit status 0" },
      { type: "terminal", terminalId: "gone", title: "Terminal", tail: "" },
    ]);
    expect(card.input).toBe('{\n  "a": 1\n}');
  });

  it("say nothing of the time of a call that was replayed", () => {
    expect(cardOf({ ...record({ status: "completed" }), replayed: true }, () => undefined)).not.toHaveProperty("seconds");
    expect(cardOf(record({ status: "completed" }), () => undefined)).toHaveProperty("seconds", 0);
  });

  it("open as a text with input and output", () => {
    const text = outputOf(record({ status: "completed", rawInput: { command: "ls" }, content: [{ type: "terminal", terminalId: "t" }] }), () => "\u001b[1ma.py\u001b[0m\r\n");
    expect(text).toContain('"command": "ls"');
    expect(text).toContain("\na.py\n");
  });
});

describe("a form that one tap answers", () => {
  const choice = { type: "string", enum: ["red", "green"] } as const;
  const words = { type: "string", title: "Something else" } as const;
  const tap = (properties: Record<string, object>, required: string[] = []): unknown => tapOf(fieldsOf({ properties, required } as never));

  it("has choices, and perhaps a field for other words; leaving it is no choice", () => {
    const choices = [
      { value: "red", label: "red" },
      { value: "green", label: "green" },
    ];
    expect(tap({ words, choice })).toMatchObject({ key: "choice", choices, other: { key: "words" } });
    expect(tap({ choice }, ["choice"])).toEqual({ key: "choice", choices, other: undefined });
    expect(tap({ sure: { type: "boolean" } })).toMatchObject({ choices: [{ label: "Yes" }, { label: "No" }] });
  });

  it("is no other: with more to say, or to choose several of", () => {
    expect([tap({ words }), tap({ choice, other: choice }), tap({ choice, words }, ["words"]), tap({ choice, words, more: words }), tap({})]).toEqual(Array(5).fill(undefined));
    expect(tap({ several: { type: "array", items: choice } })).toBeUndefined();
  });
});

describe("the exit status of a command", () => {
  const ended = (rawOutput: unknown, more: object = {}): unknown => {
    const record = new ToolCalls(() => 0).apply("s", { toolCallId: "1", title: "Do", status: "failed", kind: "execute" }, { turn: 1, replayed: false });
    return cardOf({ ...record, rawOutput, ...more }, () => undefined).exitCode;
  };

  it("is on its card once it has ended, unless its terminal says it", () => {
    expect(ended({ exit_code: 3 })).toBe(3);
    expect(ended({ exit_code: 0 }, { status: "completed" })).toBe(0);
    const terminal = { content: [{ type: "terminal", terminalId: "t" }] };
    expect([ended({ exit_code: null }), ended("3"), ended({ exit_code: 3 }, { kind: "read" }), ended({ exit_code: 3 }, terminal), ended({ exit_code: 3 }, { status: "in_progress" })]).toEqual(Array(5).fill(undefined));
  });
});
