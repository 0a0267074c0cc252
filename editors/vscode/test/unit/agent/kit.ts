import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, vi } from "vitest";
import { connect } from "../../../src/agent/connection.js";
import { AgentHost } from "../../../src/agent/host.js";
import { RequestFailure } from "../../../src/agent/link.js";
import { problems } from "../../../src/agent/problems.js";
import { Program } from "../../../src/agent/program.js";
import { ToolCalls } from "../../../src/core/toolCalls.js";

const FIXTURE = join(dirname(fileURLToPath(import.meta.url)), "../../fixtures/agent.mjs");

const hosts: AgentHost[] = [];
afterEach(async () => {
  await Promise.all(hosts.splice(0).map((host) => host.stop()));
});

export interface Rig {
  readonly host: AgentHost;
  readonly calls: ToolCalls;
  readonly wire: { direction: string; message: { method?: string; params?: Record<string, unknown> } }[];
  readonly folder: string;
}

/** A host whose agent is the fixture, run with `odd`; `command` runs another program. */
export function rig(odd = "", more: { command?: string; args?: readonly string[]; folders?: readonly string[]; timeout?: number } = {}): Rig {
  const folder = mkdtempSync(join(tmpdir(), "acp-vscode-"));
  const calls = new ToolCalls();
  const wire: Rig["wire"] = [];
  const refuse = (): never => {
    throw new RequestFailure(-32002, "the file does not exist: /missing");
  };
  const program = new Program({
    connect: () => Promise.resolve(connect),
    places: () => ({
      isExecutable: () => Promise.resolve(true),
      environment: process.env,
      platform: process.platform,
      folders: more.folders ?? [folder],
      home: folder,
    }),
    settings: () => ({
      uvx: false,
      command: more.command ?? process.execPath,
      args: more.args ?? [FIXTURE, odd],
      env: {},
      startTimeout: more.timeout ?? 15_000,
    }),
    capabilities: { fs: { readTextFile: true, writeTextFile: true } },
    lspMethods: ["_lsp/hover"],
    version: "1",
    environment: () => ({ PATH: process.env["PATH"] ?? "" }),
    onWire: (direction, message) => {
      wire.push({ direction, message: message as Rig["wire"][number]["message"] });
    },
    log: () => undefined,
    client: {
      readTextFile: () => Promise.resolve().then(refuse),
      writeTextFile: () => Promise.resolve({}),
      createTerminal: () => Promise.resolve().then(refuse),
      terminalOutput: refuse,
      waitForTerminalExit: () => Promise.resolve().then(refuse),
      killTerminal: refuse,
      releaseTerminal: refuse,
      elicit: () => Promise.resolve({ action: "cancel" }),
      elicitationComplete: () => undefined,
      languageServer: (method, params) => Promise.resolve({ method, params }),
    },
  });
  const [first = folder, ...others] = more.folders ?? [folder];
  const host = new AgentHost({ calls, start: (side) => program.start(side), folders: () => [first, ...others], problems, log: () => undefined });
  hosts.push(host);
  return { host, calls, wire, folder };
}

/** Waits, bounded, until `holds`. */
export async function until(holds: () => unknown): Promise<void> {
  await vi.waitFor(
    () => {
      if (holds() !== true) {
        throw new Error("not yet");
      }
    },
    { timeout: 60_000, interval: 5 },
  );
}
