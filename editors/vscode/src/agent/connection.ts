/** The agent as a program: with `speaking` the only module that loads the SDK, a bundle of its own, loaded at the first start. */
import { ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";
import type { ClientApp, ClientConnection } from "@agentclientprotocol/sdk";
import { Readable, Writable } from "node:stream";
import { codeOf, messageOf } from "../core/words.js";
import type { AgentLink, ClientSide, ConnectOptions } from "./link.js";
import { StartFailure } from "./link.js";
import { AgentProcess } from "./process.js";
import { linked, once, speaking, tapped, told } from "./speaking.js";

/** Milliseconds within which a program whose output ended should exit. */
const LAST_WORDS = 1_000;
const MAX_MESSAGE_BYTES = 256 * 1024 * 1024;

/** Starts the agent and sends `initialize`. Throws StartFailure, with the agent's stderr. */
export async function connect(options: ConnectOptions): Promise<AgentLink> {
  const child = await AgentProcess.start(options, options.onStderr);
  const wire = ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout), {
    maxMessageBytes: MAX_MESSAGE_BYTES,
  });
  const connection = serving(options).connect(tapped(wire, options.onWire));
  // The process reports its end; without a listener a broken pipe would be an unhandled rejection.
  connection.closed.catch(() => undefined);
  try {
    const initialized = await answered(connection, child, options);
    if (initialized.protocolVersion !== PROTOCOL_VERSION) {
      throw new StartFailure(
        `The agent uses version ${String(initialized.protocolVersion)} of the Agent Client Protocol, this extension version ${String(PROTOCOL_VERSION)}. Update the older one.`,
        child.stderrTail,
      );
    }
    return linked(connection, initialized, { pid: child.pid, ended: child.ended, end: () => child.end() });
  } catch (error) {
    connection.close();
    await child.end();
    throw error instanceof StartFailure ? error : new StartFailure(`The agent refused to start: ${messageOf(error)}`, child.stderrTail);
  }
}

async function answered(connection: ClientConnection, child: AgentProcess, options: ConnectOptions): Promise<AgentLink["initialized"]> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      const seconds = String(Math.round(options.timeout / 1000));
      reject(new StartFailure(`The program did not answer within ${seconds} s. Is it an ACP agent that uses stdin and stdout?`, child.stderrTail));
    }, options.timeout);
  });
  const gone = child.ended.then(({ code, signal, stderr }) => {
    const how = signal === null ? `exited with status ${String(code)}` : `was killed by ${signal}`;
    throw new StartFailure(`The program ${how} before it answered. Is it an ACP agent that uses stdin and stdout?`, stderr);
  });
  const answer = connection.agent.request("initialize", {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: options.capabilities,
    clientInfo: { name: "vscode-acp-coder", title: "acp-coder for VS Code", version: options.version },
  });
  answer.catch(() => undefined);
  gone.catch(() => undefined);
  try {
    return await Promise.race([answer, late, gone]);
  } catch (error) {
    if (codeOf(error) === undefined) {
      // The end of its output is seen before the end of the program, which is more informative.
      await Promise.race([gone, new Promise((resolve) => setTimeout(resolve, LAST_WORDS))]);
    }
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

function serving({ client: side, lspMethods }: ConnectOptions): ClientApp {
  const app = speaking("vscode-acp-coder", side)
    .onRequest("fs/read_text_file", ({ params }) => told(side.readTextFile(params)))
    .onRequest("fs/write_text_file", ({ params }) => told(side.writeTextFile(params)))
    .onRequest("terminal/create", ({ params }) => told(side.createTerminal(params)))
    .onRequest("terminal/output", ({ params }) => told(once(() => side.terminalOutput(params))))
    .onRequest("terminal/wait_for_exit", ({ params, signal }) => told(side.waitForTerminalExit(params, signal)))
    .onRequest("terminal/kill", ({ params }) => told(once(() => side.killTerminal(params))))
    .onRequest("terminal/release", ({ params }) => told(once(() => side.releaseTerminal(params))));
  for (const method of lspMethods) {
    app.onRequest(method, (params) => params, ({ params }) => told(languageServer(side, method, params)));
  }
  return app;
}

async function languageServer(side: ClientSide, method: string, params: unknown): Promise<unknown> {
  return (await side.languageServer(method, params)) ?? null;
}
