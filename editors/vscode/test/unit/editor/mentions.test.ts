import { afterEach, expect, test, vi } from "vitest";
import type { AgentHost } from "../../../src/agent/host.js";
import { blocksOf, complete } from "../../../src/chat/mentions.js";
import { TypedCommands } from "../../../src/editor/typedCommands.js";
import { answers, fire, window } from "./vscode.js";

vi.mock("vscode", async () => (await import("./vscode.js")).vscode);
Object.assign(window, { tabGroups: { all: [] } });
afterEach(() => {
  answers.git = undefined;
  answers.command = undefined;
});

const HOST = { capabilities: { promptCapabilities: { embeddedContext: true } } } as unknown as AgentHost;

function git(diff: (cached?: boolean) => Promise<string>): void {
  const repository = { state: { workingTreeChanges: [1], indexChanges: [] }, diff };
  answers.git = { isActive: true, exports: { getAPI: () => ({ repositories: [repository] }) } };
}

async function labels(query: string, commands = new TypedCommands()): Promise<string[]> {
  return (await complete(query, commands)).map(({ label }) => label);
}

test("git is asked only where its changes may be meant, and its failure withholds nothing else", async () => {
  const diff = vi.fn((cached?: boolean) => Promise.resolve(cached === true ? "" : "-a\n+b\n"));
  git(diff);
  expect(await labels("")).toEqual(["problems", "diff"]);
  expect(diff).toHaveBeenCalledTimes(2);
  expect(await labels("pro")).toEqual(["problems"]);
  expect(diff).toHaveBeenCalledTimes(2);
  git(() => Promise.reject(new Error("the index is locked")));
  answers.command = new Error("no language server");
  expect(await labels("")).toEqual(["problems"]);
  expect(await labels("problems")).toEqual(["problems"]);
});

test("of a long diff the agent gets the beginning, and is told so", async () => {
  git((cached) => Promise.resolve(cached === true ? "" : `+${"😀".repeat(150_000)}`));
  const [found] = (await complete("diff", new TypedCommands())).flatMap(({ attachment }) => attachment ?? []);
  const [, block] = await blocksOf("Look", found === undefined ? [] : [found], HOST);
  const text = block?.type === "resource" && "text" in block.resource ? block.resource.text : "";
  expect(text.slice(-50)).toMatch(/😀\n… \(100002 more characters are left out\)$/u);
  expect(/[\ud800-\udfff]/u.test(text)).toBe(false);
});

/** A command in a terminal, whose output comes when it is told. */
function typed(command: string): { write: (chunk: string) => Promise<void>; execution: unknown } {
  let give: (chunk: string) => void = () => undefined;
  async function* read(): AsyncGenerator<string> {
    for (;;) {
      yield await new Promise<string>((resolve) => {
        give = resolve;
      });
    }
  }
  const write = async (chunk: string): Promise<void> => {
    give(chunk);
    await new Promise((resolve) => setTimeout(resolve));
  };
  return { write, execution: { commandLine: { value: command }, read } };
}

test("the last command of a terminal is the one that was run last, whatever writes last", async () => {
  const commands = new TypedCommands();
  const [server, check] = [typed("npm run dev"), typed(`pytest ${"x".repeat(100)}`)];
  fire("shell", { execution: server.execution });
  await server.write("listening\n");
  fire("shell", { execution: check.execution });
  await server.write("GET /\n");
  await check.write("1 failed\n");
  await server.write("GET /\n");
  const entry = (await complete("terminal", commands)).at(0);
  expect(entry?.attachment).toMatchObject({ text: `$ pytest ${"x".repeat(100)}\n1 failed\n` });
  expect(entry?.detail).toHaveLength(60);
});

test("another session is mentioned by its title, and the agent gets its text", async () => {
  const sessions = [
    { sessionId: "s1", cwd: "/w", title: "Paint the fence" },
    { sessionId: "s2", cwd: "/w", title: "Mow the lawn" },
    { sessionId: "s3", cwd: "/w", title: null },
  ];
  const list = vi.fn(() => Promise.resolve(sessions));
  expect((await complete("", new TypedCommands(), list)).map(({ label }) => label)).toEqual(["problems"]);
  expect(list).not.toHaveBeenCalled();
  expect((await complete("session", new TypedCommands(), list)).map(({ label }) => label)).toEqual(["Paint the fence", "Mow the lawn"]);
  const [found] = await complete("the-fen", new TypedCommands(), list);
  expect(found).toEqual({ insert: "Paint-the-fence", label: "Paint the fence", detail: "session", attachment: { kind: "session", sessionId: "s1", label: "Paint the fence" } });
  const blocks = await blocksOf("Look", found?.attachment === undefined ? [] : [found.attachment], HOST, (id) => Promise.resolve(`All of ${id}`));
  expect(blocks[1]).toMatchObject({ type: "resource", resource: { uri: "acp-coder:session/s1/Paint%20the%20fence", text: "All of s1" } });
  // Its list is no reason to withhold the rest.
  expect(await complete("problems", new TypedCommands(), () => Promise.reject(new Error("gone")))).toHaveLength(1);
});

test("the address of a web page behind an @ is a link for the agent, chosen, typed or pasted, once", async () => {
  const [found] = await complete("https://a.b/c", new TypedCommands());
  expect(found?.attachment).toEqual({ kind: "page", uri: "https://a.b/c", label: "https://a.b/c" });
  const text = "See @https://a.b/c, (@http://d.e) and https://f.g; not me@https://h.i or @https://";
  const blocks = await blocksOf(text, found?.attachment === undefined ? [] : [found.attachment], HOST);
  expect(blocks.slice(1)).toEqual(["https://a.b/c", "http://d.e"].map((uri) => ({ type: "resource_link", uri, name: uri })));
});
