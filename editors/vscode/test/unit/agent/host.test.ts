import { describe, expect, it } from "vitest";
import type { Session } from "../../../src/agent/session.js";
import { rig, until } from "./kit.js";

function texts(session: Session): string[] {
  return session.transcript.items.flatMap((item) => ("text" in item ? [item.type === "notice" ? `${item.title} ${item.text}`.trim() : item.text] : []));
}

async function said(session: Session, prompt: string): Promise<string> {
  session.prompt(prompt, [{ type: "text", text: prompt }]);
  await until(() => !session.running);
  return texts(session).at(-1) ?? "";
}

describe("the agent's life", () => {
  it("is started once, however many ask for it at the same time", async () => {
    const { host, wire } = rig();
    const links = await Promise.all([host.start(), host.start(), host.start()]);
    expect(new Set(links).size).toBe(1);
    expect(wire.filter(({ message }) => message.method === "initialize")).toHaveLength(1);
    expect(host.status).toBe("ready");
    expect(host.name).toBe("Fixture");
  });

  it.each([
    ["a program that ends", { args: ["-e", "process.stderr.write('no key'); process.exit(3)"] }, /status 3/u, /no key/u],
    ["a program that is no agent", { command: "/bin/cat", args: ["/dev/null"] }, /an ACP agent/u, /cat/u],
    ["a program that says nothing", { args: ["-e", "setInterval(() => 0, 1000)"], timeout: 300 }, /did not answer/u, /node/u],
    ["a program that is not there", { command: "/nowhere/agent", args: [] }, /could not be started/u, /nowhere/u],
  ])("that cannot begin is told in words: %s", async (_, more, title, detail) => {
    const { host } = rig("", more);
    await expect(host.start()).rejects.toThrow();
    expect(host.status).toBe("failed");
    expect(host.problem?.detail).toMatch(title);
    expect(host.problem?.detail).toMatch(detail);
    expect(host.problem?.actions.map(({ command }) => command)).toContain("acpCoder.restart");
  });

  it("that speaks another version of the protocol is refused with both versions named", async () => {
    const { host } = rig("old");
    await expect(host.start()).rejects.toThrow("version 0");
  });

  it("needs a folder", async () => {
    const { host } = rig("", { folders: [] });
    await expect(host.start()).rejects.toThrow("Open a folder first.");
  });

  it("that ends in the middle of a prompt is told, with its last words, and begins again where it was", async () => {
    const { host, calls } = rig();
    const session = await host.newSession();
    session.prompt("die", [{ type: "text", text: "die" }]);
    await until(() => host.status === "failed");
    expect(host.problem?.detail).toMatch(/exit status 9[^]*out of memory/u);
    expect(calls.running()).toEqual([]);
    await host.restart();
    expect(host.status).toBe("ready");
    expect(host.active?.id).toBe(session.id);
    expect(host.active).not.toBe(session);
  });

  it("ends with the window", async () => {
    const { host } = rig();
    const link = await host.start();
    await host.stop();
    expect(await link.ended).toMatchObject({ wanted: true });
    expect(host.status).toBe("stopped");
  });

  it("asks for a login in words, and goes on after it", async () => {
    const { host } = rig("login");
    await expect(host.newSession()).rejects.toThrow();
    expect(host.problem?.actions[0]).toEqual({ label: "API key", command: "acpCoder.login", argument: "key" });
    await host.login("key");
    expect(host.problem).toBeNull();
    expect((await host.newSession()).id).toBe("s1");
  });
});

describe("sessions", () => {
  it("tell the agent all folders where it takes several, else the first", async () => {
    const several = rig("", { folders: ["/tmp", "/usr"] });
    await several.host.newSession();
    const sent = several.wire.find(({ message }) => message.method === "session/new");
    expect(sent?.message.params).toMatchObject({ cwd: "/tmp", additionalDirectories: ["/usr"] });
    const one = rig("bare", { folders: ["/tmp", "/usr"] });
    await one.host.newSession();
    expect(one.wire.find(({ message }) => message.method === "session/new")?.message.params).not.toHaveProperty("additionalDirectories");
  });

  it("take in what an agent says of them before their id is known", async () => {
    const { host } = rig("early");
    const session = await host.newSession();
    expect(session.transcript.commands.map(({ name }) => name)).toEqual(["early"]);
  });

  it("are loaded whole, their calls marked as replayed", async () => {
    const { host, calls } = rig();
    const session = await host.openSession("old");
    expect(texts(session)).toEqual(["Earlier", "Then.", "Later"]);
    expect(calls.get("old", "c")).toMatchObject({ status: "completed", replayed: true, turn: 1 });
    expect(calls.get("old", "left")).toMatchObject({ status: "cancelled", turn: 2 });
    expect(session.loading).toBe(false);
    expect(await host.openSession("old")).toBe(session);
  });

  it("are made once, however many want the session of the window at the same time", async () => {
    const { host, wire } = rig();
    const sessions = await Promise.all([host.ready(), host.ready("unknown"), host.ready()]);
    expect(new Set(sessions).size).toBe(1);
    expect(wire.filter(({ message }) => message.method === "session/new")).toHaveLength(1);
    expect(await host.ready()).toBe(sessions[0]);
  });

  it("of earlier are opened again, or a new one where they are not known any more", async () => {
    const { host } = rig();
    expect((await host.ready("old")).id).toBe("old");
    const other = rig();
    expect((await other.host.ready("unknown")).id).toBe("s1");
  });

  it("that fail to open leave the one that was looked at", async () => {
    const { host } = rig();
    const session = await host.newSession();
    await expect(host.openSession("unknown")).rejects.toThrow("no such session");
    expect(host.active).toBe(session);
  });

  it("of an agent that has ended are opened again by the next prompt", async () => {
    const { host } = rig();
    const session = await host.newSession();
    session.prompt("die", [{ type: "text", text: "die" }]);
    await until(() => host.status === "failed");
    const again = await host.ready();
    expect(again.id).toBe(session.id);
    expect(await said(again, "hello")).toBe("You said: hello");
  });

  it("that are not there leave nothing behind", async () => {
    const { host } = rig();
    await expect(host.openSession("unknown")).rejects.toThrow("no such session");
    expect(host.active).toBeUndefined();
    expect(host.all).toEqual([]);
  });

  it("of an agent that cannot load say so", async () => {
    const { host } = rig("bare");
    await expect(host.openSession("old")).rejects.toThrow("Fixture cannot open earlier sessions.");
    expect(await host.listSessions()).toEqual([]);
  });

  it("that are deleted are gone from here too", async () => {
    const { host, calls } = rig();
    await host.openSession("old");
    await host.deleteSession("old");
    expect(host.active).toBeUndefined();
    expect(calls.list("old")).toEqual([]);
  });
});

describe("prompts", () => {
  it("are answered in pieces and shown", async () => {
    const { host } = rig();
    const session = await host.newSession();
    expect(await said(session, "hello")).toBe("You said: hello");
    expect(await said(session, "long")).toMatch(/token limit/u);
  });

  it("wait their turn, can be taken out, and go in order", async () => {
    const { host } = rig();
    const session = await host.newSession();
    session.prompt("ask", [{ type: "text", text: "ask" }]);
    for (const words of ["one", "two", "three"]) {
      session.prompt(words, [{ type: "text", text: words }]);
    }
    session.unqueue(session.queued[1]?.id ?? "");
    expect(session.queued.map(({ text }) => text)).toEqual(["one", "three"]);
    await until(() => session.questions.length === 1);
    session.answer(session.questions[0]?.id ?? "", "yes");
    await until(() => !session.running && session.queued.length === 0);
    await until(() => texts(session).at(-1) === "You said: three");
    expect(texts(session)).toEqual(["ask", "yes", "one", "You said: one", "three", "You said: three"]);
  });

  it("that wait can join the running turn, where the agent takes them", async () => {
    const { host, wire } = rig("steers");
    const session = await host.newSession();
    session.prompt("ask", [{ type: "text", text: "ask" }]);
    for (const words of ["now", "too late", "/compact"]) {
      session.prompt(words, [{ type: "text", text: words }]);
    }
    expect(session.queued.map(({ now }) => now)).toEqual([true, true, false]);
    await session.steer(session.queued[0]?.id ?? "");
    await session.steer(session.queued[0]?.id ?? "");
    await session.steer("nobody");
    expect(session.queued.map(({ text }) => text)).toEqual(["too late", "/compact"]);
    expect(texts(session)).toEqual(["ask", "now"]);
    await until(() => session.questions.length === 1);
    session.answer(session.questions[0]?.id ?? "", "yes");
    await until(() => texts(session).at(-1) === "You said: /compact");
    expect(texts(session)).toEqual(["ask", "now", "yes", "too late", "You said: too late", "/compact", "You said: /compact"]);
    expect(wire.filter(({ message }) => message.method === "_session/steering")).toHaveLength(2);
  });

  it("that an agent does not take meanwhile only wait", async () => {
    const { host } = rig();
    const session = await host.newSession();
    session.prompt("ask", [{ type: "text", text: "ask" }]);
    session.prompt("later", [{ type: "text", text: "later" }]);
    expect(session.queued.map(({ now }) => now)).toEqual([false]);
    await session.steer(session.queued[0]?.id ?? "");
    expect(session.queued.map(({ text }) => text)).toEqual(["later"]);
  });

  it("that are stopped end, with their calls, and what waited goes back", async () => {
    const { host, calls } = rig();
    const session = await host.newSession();
    const returned: string[] = [];
    session.onReturned = (prompts) => returned.push(...prompts.map(({ text }) => text));
    session.prompt("wait", [{ type: "text", text: "wait" }]);
    session.prompt("later", [{ type: "text", text: "later" }]);
    await until(() => calls.running().length === 1);
    session.stop();
    expect(session.stopping).toBe(true);
    await until(() => !session.running);
    expect(calls.get(session.id, "w")?.status).toBe("cancelled");
    expect(returned).toEqual(["later"]);
    expect(session.stopping).toBe(false);
    expect(await said(session, "again")).toBe("You said: again");
  });

  it("may count their tool calls anew each time: each is shown for itself", async () => {
    const { host, calls } = rig();
    const session = await host.newSession();
    await said(session, "count");
    await said(session, "count");
    expect(calls.list(session.id).map(({ turn, status, title }) => [turn, status, title])).toEqual([
      [1, "completed", "Count"],
      [2, "completed", "Count"],
    ]);
    expect(session.transcript.items.filter(({ type }) => type === "tool")).toHaveLength(2);
  });

  it("that end with a call that has not leave nothing running", async () => {
    const { host, calls } = rig();
    const session = await host.newSession();
    await said(session, "leave");
    expect(calls.running()).toEqual([]);
  });

  it("that need a login say so once, until a prompt is answered", async () => {
    const { host } = rig();
    const session = await host.newSession();
    expect(await said(session, "expired")).toBe("The prompt failed.");
    expect(host.problem).toMatchObject({ title: "The agent needs a login." });
    expect(host.problem?.detail).toContain("the key has expired");
    session.again();
    await until(() => !session.running);
    expect(texts(session).at(-1)).toBe("It is a new key.");
    expect(host.problem).toBeNull();
  });

  it("that fail say why, with the details, and leave no call running", async () => {
    const { host, calls } = rig();
    const session = await host.newSession();
    expect(await said(session, "fail")).toBe("The prompt failed. Internal error: the model is on fire");
    expect(calls.get(session.id, "f")?.status).toBe("failed");
    expect(await said(session, "hello")).toBe("You said: hello");
  });
});

describe("questions", () => {
  it("are answered once, with an option that they have", async () => {
    const { host } = rig();
    const session = await host.newSession();
    session.prompt("ask", [{ type: "text", text: "ask" }]);
    await until(() => session.questions.length === 1);
    const [question] = session.questions;
    expect(question).toMatchObject({ title: "Delete all", options: [{ name: "Yes" }, { name: "No" }], about: { text: "Delete all" }, seen: false });
    session.see(question?.id ?? "");
    expect(session.questions).toMatchObject([{ seen: true }]);
    expect(session.answer(question?.id ?? "", "maybe")).toBe(false);
    expect(session.answer(question?.id ?? "", "no")).toBe(true);
    expect(session.answer(question?.id ?? "", "yes")).toBe(false);
    await until(() => !session.running);
    expect(texts(session).at(-1)).toBe("no");
  });

  it("are answered `cancelled` when the turn is stopped", async () => {
    const { host } = rig();
    const session = await host.newSession();
    session.prompt("ask", [{ type: "text", text: "ask" }]);
    await until(() => session.questions.length === 1);
    session.stop();
    await until(() => !session.running);
    expect(session.questions).toEqual([]);
    expect(texts(session)).toContain("cancelled");
  });
});

describe("what the agent asks of the editor", () => {
  it("fails with the code and the words that were given", async () => {
    const { host } = rig();
    expect(await said(await host.newSession(), "read")).toBe("-32002: the file does not exist: /missing");
  });

  it("reaches the language servers", async () => {
    const { host } = rig();
    expect(JSON.parse(await said(await host.newSession(), "hover"))).toEqual({ method: "_lsp/hover", params: { sessionId: "s1", at: 1 } });
  });

  it("is seen in the trace, both ways", async () => {
    const { host, wire } = rig();
    await said(await host.newSession(), "read");
    expect(wire.map(({ direction, message }) => `${direction} ${message.method ?? "answer"}`)).toEqual(
      expect.arrayContaining(["sent initialize", "received answer", "received fs/read_text_file", "sent answer"]),
    );
  });
});

describe("choices", () => {
  it("change when the agent agrees, and only then", async () => {
    const { host } = rig();
    const session = await host.newSession();
    await session.setMode("b");
    expect(session.transcript.modes?.currentModeId).toBe("b");
    await expect(session.setMode("bad")).rejects.toThrow("unknown mode");
    expect(session.transcript.modes?.currentModeId).toBe("b");
  });
});
