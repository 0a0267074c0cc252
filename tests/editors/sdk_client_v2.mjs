// A client of v2 of the official TypeScript SDK for test_typescript_v2.py: one process of the agent, prompts in turn.
//
//   node sdk_client_v2.mjs PLAN   with PLAN = {sdk, command, cwd, resume?, prompts: [{text, cancelAt?}], allow?}
//
// Writes one JSON document of what the SDK decoded.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

const plan = JSON.parse(process.argv[2]);
const acp = await import(plan.sdk);
const seen = { updates: [], asked: [], answers: [], ends: [] };
let watch = () => {};

const app = acp
  .client({ name: "sdk-client" })
  .onNotification("session/update", ({ params }) => {
    seen.updates.push(params.update);
    watch(params.update);
  })
  .onRequest("session/request_permission", ({ params }) => {
    seen.asked.push(params);
    const kind = plan.allow === false ? "reject_once" : "allow_once";
    const { optionId } = params.options.find((option) => option.kind === kind);
    return { outcome: { outcome: "selected", optionId } };
  });

const agent = spawn(plan.command, [], { stdio: ["pipe", "pipe", "inherit"] });
await app.connectWith(
  acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)),
  async (context) => {
    seen.initialized = await context.request("initialize", {
      protocolVersion: acp.PROTOCOL_VERSION,
      capabilities: {},
      info: { name: "sdk-client", version: "1" },
    });
    if (plan.resume === undefined) {
      seen.session = await context.request("session/new", { cwd: plan.cwd });
    } else {
      const params = { sessionId: plan.resume, cwd: plan.cwd, replayFrom: { type: "start" } };
      seen.session = { sessionId: plan.resume, ...(await context.request("session/resume", params)) };
    }
    const { sessionId } = seen.session;
    for (const { text, cancelAt } of plan.prompts) {
      let said = "";
      const ended = new Promise((resolve) => {
        watch = (update) => {
          said += update.sessionUpdate === "agent_message_chunk" ? update.content.text : "";
          if (cancelAt !== undefined && said.endsWith(cancelAt)) {
            void context.notify("session/cancel", { sessionId });
          }
          if (update.sessionUpdate === "state_update" && update.state === "idle" && update.stopReason) {
            resolve(update);
          }
        };
      });
      seen.answers.push(await context.request("session/prompt", { sessionId, prompt: [{ type: "text", text }] }));
      seen.ends.push(await ended);
    }
    await context.request("session/close", { sessionId });
  },
);
agent.stdin.end();
const ended = (resolve) => (agent.exitCode === null ? agent.on("exit", resolve) : resolve(agent.exitCode));
seen.exit = await new Promise(ended);
process.stdout.write(JSON.stringify(seen));
