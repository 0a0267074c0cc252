import { describe, expect, it } from "vitest";
import type { Session } from "../../../src/agent/session.js";
import { GoingBack } from "../../../src/agent/goingBack.js";
import { Undo } from "../../../src/agent/undo.js";
import type { Rig } from "./kit.js";
import { rig, until } from "./kit.js";

interface Undoing extends Rig {
  readonly undo: Undo;
  readonly session: Session;
}

/** A session in which `One` and `Two` were said, and the agent has looked at it. */
async function begun(odd = "undo"): Promise<Undoing> {
  const made = rig(odd);
  const undo = new Undo(made.host, made.calls, () => undefined);
  const session = await made.host.newSession();
  for (const words of ["One\n", "Two\n"]) {
    session.prompt(words, [{ type: "text", text: words }]);
    await until(() => !session.running);
  }
  await undo.look();
  return { ...made, undo, session };
}

function said(session: Session | undefined): string[] {
  return (session?.transcript.items ?? []).flatMap((item) => (item.type === "user" ? [item.text] : []));
}

function count({ wire }: Rig, method: string): number {
  return wire.filter(({ message }) => message.method === method).length;
}

describe("undo", () => {
  it("numbers the prompts of the chat by itself, after each turn", async () => {
    const { undo, session } = await begun();
    const [one, two] = session.transcript.items.filter(({ type }) => type === "user");
    expect(undo.facts).toEqual({ of: { [one?.id ?? ""]: 1, [two?.id ?? ""]: 2 }, fork: true, redo: false });
    session.prompt("Three\n", [{ type: "text", text: "Three\n" }]);
    await until(() => Object.keys(undo.facts.of).length === 3);
  });

  it("asks for the changes only while someone looks at them", async () => {
    const rigged = await begun();
    const { undo } = rigged;
    expect(count(rigged, "_session/changes")).toBe(0);
    undo.watched = true;
    await undo.look();
    expect(undo.now.turn.changes[0]).toMatchObject({ added: 1, oldText: "One\n" });
    expect(undo.now.session.changes[0]).toMatchObject({ added: 2, oldText: "" });
    expect(undo.now.last?.prompt).toBe(2);
  });

  it("previews without doing, then does, and the chat shows what is left", async () => {
    const { undo, session, host } = await begun();
    const target = { to: 2, what: "both" } as const;
    expect(await undo.preview(session, target)).toMatchObject({ done: false, words: "Would take back 1." });
    expect(said(host.active)).toEqual(["One\n", "Two\n"]);
    expect(await undo.run(session, target)).toMatchObject({ done: true });
    expect(said(host.active)).toEqual(["One\n"]);
    expect(undo.facts.redo).toBe(true);
    expect(host.all).toHaveLength(1);
    await undo.run(host.active ?? session, "redo");
    expect(said(host.active)).toEqual(["One\n", "Two\n"]);
  });

  it("leaves the chat as it is where only files or a hunk were taken back", async () => {
    const rigged = await begun();
    const { undo, session, host } = rigged;
    await undo.run(session, { to: 2, what: "files" });
    await undo.run(session, { path: "/w/a.txt", since: 1, hunks: [0], expect: ["h"] }, true);
    expect(host.active).toBe(session);
    expect(count(rigged, "session/load")).toBe(0);
    expect(rigged.wire.filter(({ message }) => message.method === "_session/undo").map(({ message }) => message.params)).toEqual([
      { sessionId: session.id, to: 2, what: "files" },
      { sessionId: session.id, path: "/w/a.txt", since: 1, hunks: [0], expect: ["h"], merge: true },
    ]);
  });

  it("takes nothing back while the agent works", async () => {
    const rigged = await begun();
    rigged.session.prompt("wait", [{ type: "text", text: "wait" }]);
    await until(() => rigged.calls.get(rigged.session.id, "w") !== undefined);
    await expect(rigged.undo.run(rigged.session, "redo")).rejects.toThrow("stop it first");
    expect(count(rigged, "_session/redo")).toBe(0);
    rigged.session.stop();
    await until(() => !rigged.session.running);
  });

  it("asks nothing of an agent that cannot", async () => {
    const rigged = await begun("");
    expect(rigged.undo.available).toBe(false);
    expect(rigged.undo.facts).toEqual({ of: {}, fork: false, redo: false });
    expect(count(rigged, "_session/checkpoints")).toBe(0);
  });

  it("shows what is left also where the user said it as a command", async () => {
    const { undo, session, host } = await begun();
    await host.running?.extension("_session/undo", { sessionId: session.id, to: 2 });
    await undo.look();
    expect(said(host.active)).toEqual(["One\n"]);
    expect(undo.facts.redo).toBe(false);
  });

  it("keeps the session where it cannot be loaded anew", async () => {
    const { undo, session, host } = await begun();
    session.prompt("lose", [{ type: "text", text: "lose" }]);
    await until(() => !session.running);
    await undo.look();
    await undo.run(session, { to: 1, what: "both" });
    expect(session.transcript.items.at(-1)).toMatchObject({ type: "notice", text: "it was lost" });
    expect(host.active).toBe(session);
    expect(host.session(session.id)).toBe(session);
  });

  it("forks: a session of its own, from before a prompt, is the active one", async () => {
    const rigged = await begun();
    const fork = await rigged.host.fork(rigged.session, 2);
    expect(rigged.host.active).toBe(fork);
    expect(fork.id).toBe(`fork-of-${rigged.session.id}-to-2`);
    expect(rigged.host.session(rigged.session.id)).toBe(rigged.session);
    expect(rigged.wire.find(({ message }) => message.method === "session/fork")?.message.params).toMatchObject({ cwd: rigged.folder, mcpServers: [] });
  });

  it("offers to redo in the session in which something was taken back, whichever is shown", async () => {
    const { undo, session, host } = await begun();
    await host.newSession();
    await undo.run(session, { to: 2, what: "files" });
    expect(undo.facts.redo).toBe(false);
    host.look(session.id);
    await undo.look();
    expect(undo.facts.redo).toBe(true);
  });

  it("lists nothing that the user has kept in an earlier window, by session", async () => {
    const stored = new Map<string, readonly string[]>();
    const memory = {
      read: (id: string) => stored.get(id) ?? [],
      write: (id: string, keys: readonly string[]) => {
        stored.set(id, keys);
      },
    };
    const { undo, host, calls, session } = await begun();
    undo.memory = memory;
    undo.reviews = true;
    await undo.look();
    const [file] = undo.left;
    if (file === undefined) throw new Error("no change");
    undo.keeps.keep(file);
    expect(undo.left).toEqual([]);
    expect([...stored.keys()]).toEqual([session.id]);
    expect(stored.get(session.id)?.join().length).toBeLessThan(40 * file.hunks.length);

    const again = new Undo(host, calls, () => undefined);
    again.reviews = true;
    await again.look();
    expect(again.left).toHaveLength(1);
    const restarted = new Undo(host, calls, () => undefined);
    restarted.reviews = true;
    restarted.memory = memory;
    await restarted.look();
    expect(restarted.left).toEqual([]);
  });

  it("takes nothing back that the user keeps", async () => {
    const { undo, session, ...rigged } = await begun();
    undo.reviews = true;
    await undo.look();
    expect(undo.targets).toEqual([{ to: 2, what: "files" }]);
    const hunks = ["a", "b", "c"].map((id, index) => ({ id, oldStart: index, oldLines: 0, newStart: index + 1, newLines: 1 }));
    const [change] = undo.now.turn.changes;
    if (change === undefined) throw new Error("nothing was changed");
    const [file, other] = ["/w/a.txt", "/w/b.txt"].map((path) => ({ ...change, path, oldText: "", newText: "1\n2\n3\n", added: 3, hunks }));
    if (file === undefined || other === undefined) throw new Error("no files");
    Object.assign(undo.now.turn, { changes: [file, other] });
    undo.keeps.keep(file, hunks[1]);
    undo.keeps.keep(other);
    expect(undo.targetOf(file, 2, hunks[0])).toEqual({ path: "/w/a.txt", since: 2, hunks: [0], expect: ["a"] });
    const what = { path: "/w/a.txt", since: 2, hunks: [0, 2], expect: ["a", "c"] };
    expect(undo.targets).toEqual([what]);

    const asked: string[] = [];
    const back = new GoingBack(rigged.host, undo, {
      pickWhat: () => Promise.resolve(undefined),
      confirm: ({ changes }, verb, title) => {
        asked.push(`${verb}: ${title} (${String(changes.length)})`);
        return Promise.resolve(false);
      },
      tell: ({ words }) => {
        asked.push(words);
      },
      compose: () => undefined,
    });
    await back.takeBack();
    expect(asked).toEqual(["Undo: Undo what “Two” changed (1)", "Took back 2."]);
    expect(rigged.wire.filter(({ message }) => message.method === "_session/undo").map(({ message }) => message.params)).toEqual([
      { sessionId: session.id, dryRun: true, ...what },
      { sessionId: session.id, ...what },
    ]);
  });
});
