// A client of the official TypeScript SDK for test_clients.py: one process of the agent, one or more prompts.
//
//   node sdk_client.mjs PLAN   with PLAN = {sdk, command, cwd, load?, prompts: [{text, cancelAt?}], buffers, allow}
//
// With `remote: {client, ws, url, token}` in the place of `command` it is another machine's, over a WebSocket;
// without `ws` over HTTP.
//
// `cancelAt` cancels the turn when the streamed text holds it. Writes one JSON document of what the SDK decoded.
import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { Readable, Writable } from "node:stream";

const plan = JSON.parse(process.argv[2]);
const acp = await import(plan.sdk);
const seen = { updates: [], asked: [], reads: [], writes: [], commands: [], released: [], answers: [] };
const buffers = new Map(Object.entries(plan.buffers ?? {}));
const terminals = new Map();
let watch = () => {};

const said = () =>
  seen.updates
    .filter((update) => update.sessionUpdate === "agent_message_chunk")
    .map((update) => update.content.text)
    .join("");

const app = acp
  .client({ name: "sdk-client" })
  .onNotification("session/update", ({ params }) => {
    seen.updates.push(params.update);
    watch();
  })
  .onRequest("session/request_permission", ({ params }) => {
    seen.asked.push(params);
    const kind = plan.allow === false ? "reject_once" : "allow_once";
    const { optionId } = params.options.find((option) => option.kind === kind);
    return { outcome: { outcome: "selected", optionId } };
  })
  .onRequest("fs/read_text_file", async ({ params }) => {
    seen.reads.push(params.path);
    return { content: buffers.get(params.path) ?? (await readFile(params.path, "utf8")) };
  })
  .onRequest("fs/write_text_file", async ({ params }) => {
    seen.writes.push([params.path, params.content]);
    buffers.delete(params.path);
    await writeFile(params.path, params.content);
    return {};
  })
  .onRequest("terminal/create", ({ params }) => {
    seen.commands.push([params.command, ...(params.args ?? [])]);
    const env = { ...process.env, ...Object.fromEntries((params.env ?? []).map(({ name, value }) => [name, value])) };
    const child = spawn(params.command, params.args ?? [], { cwd: params.cwd ?? undefined, env });
    const terminal = { child, output: "", exit: null };
    terminal.ended = new Promise((resolve) => {
      child.on("close", (exitCode, signal) => {
        terminal.exit = { exitCode, signal };
        resolve(terminal.exit);
      });
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (data) => (terminal.output += data));
    }
    const terminalId = `t${terminals.size}`;
    terminals.set(terminalId, terminal);
    return { terminalId };
  })
  .onRequest("terminal/wait_for_exit", ({ params }) => terminals.get(params.terminalId).ended)
  .onRequest("terminal/output", ({ params }) => {
    const { output, exit } = terminals.get(params.terminalId);
    return { output, truncated: false, exitStatus: exit };
  })
  .onRequest("terminal/kill", ({ params }) => {
    terminals.get(params.terminalId).child.kill();
    return {};
  })
  .onRequest("terminal/release", ({ params }) => {
    seen.released.push(params.terminalId);
    return {};
  });

async function remote({ client, ws, url, token }) {
  if (!ws) {
    const { createHttpStream } = await import(client);
    return createHttpStream(url, { headers: { Authorization: `Bearer ${token}` } });
  }
  const [{ createWebSocketStream }, { WebSocket }] = await Promise.all([import(client), import(ws)]);
  return createWebSocketStream(url, { WebSocket, headers: { Authorization: `Bearer ${token}` } });
}

const agent = plan.remote ? null : spawn(plan.command, [], { stdio: ["pipe", "pipe", "inherit"] });
const stream = agent
  ? acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout))
  : await remote(plan.remote);
await app.connectWith(stream, async (context) => {
  seen.initialized = await context.request("initialize", {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: true },
    clientInfo: { name: "sdk-client", version: "1" },
  });
  if (plan.load === undefined) {
    seen.session = await context.request("session/new", { cwd: plan.cwd, mcpServers: [] });
  } else {
    const params = { sessionId: plan.load, cwd: plan.cwd, mcpServers: [] };
    seen.session = { sessionId: plan.load, ...(await context.request("session/load", params)) };
  }
  const { sessionId } = seen.session;
  for (const { text, cancelAt } of plan.prompts) {
    watch = () => {
      if (cancelAt !== undefined && said().endsWith(cancelAt)) {
        watch = () => {};
        void context.notify("session/cancel", { sessionId });
      }
    };
    seen.answers.push(await context.request("session/prompt", { sessionId, prompt: [{ type: "text", text }] }));
  }
});
if (agent) {
  agent.stdin.end();
  const ended = (resolve) => (agent.exitCode === null ? agent.on("exit", resolve) : resolve(agent.exitCode));
  seen.exit = await new Promise(ended);
}
process.stdout.write(JSON.stringify(seen));
