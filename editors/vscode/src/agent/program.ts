import { execFile } from "node:child_process";
import type * as acp from "@agentclientprotocol/sdk";
import type { AgentSettings, Found, Places } from "../core/find.js";
import { findAgent, isFound } from "../core/find.js";
import { messageOf } from "../core/words.js";
import type { SessionSide } from "./host.js";
import type { AgentLink, ClientSide, Connect, OnWire } from "./link.js";
import { isStartFailure, Unstartable } from "./link.js";
import { noFolderProblem, notFoundProblem, startProblem } from "./problems.js";

/** Milliseconds for a command of the agent's; the server may be asked about a key meanwhile. */
const PATIENCE = 60_000;
const MOST_OUTPUT = 64 * 1024 * 1024;

export interface ProgramOptions {
  readonly connect: () => Promise<Connect>;
  readonly places: () => Places;
  readonly settings: () => AgentSettings & { readonly env: Readonly<Record<string, string>>; readonly startTimeout: number };
  readonly capabilities: acp.ClientCapabilities;
  readonly lspMethods: readonly string[];
  readonly version: string;
  readonly client: Omit<ClientSide, keyof SessionSide>;
  readonly environment: () => Readonly<Record<string, string>>;
  readonly onWire: OnWire;
  readonly log: (text: string) => void;
}

/** The agent's program on this machine: found, and started. */
export class Program {
  /** Where it was found; undefined until the first start. */
  found: Found | undefined;

  constructor(private readonly options: ProgramOptions) {}

  /** What another command of the program writes. Throws its last words if it fails. */
  output(args: readonly string[], input = ""): Promise<string> {
    const { found } = this;
    if (found === undefined) {
      return Promise.reject(new Error("The agent's program was not found."));
    }
    const { folders, home } = this.options.places();
    const env = { ...this.options.environment(), ...this.options.settings().env };
    const options = { env, cwd: folders[0] ?? home, timeout: PATIENCE, maxBuffer: MOST_OUTPUT, windowsHide: true };
    return new Promise((resolve, reject) => {
      const child = execFile(found.command, [...found.args, ...args], options, (error, stdout, stderr) => {
        if (error === null) {
          resolve(stdout);
        } else {
          const [words = ""] = stderr.trim().split("\n").slice(-1);
          reject(new Error(words.replace(/^acp-coder: /u, "") || error.message));
        }
      });
      child.stdin?.on("error", () => undefined);
      child.stdin?.end(`${input}\n`);
    });
  }

  /** Throws Unstartable. */
  async start(side: SessionSide): Promise<AgentLink> {
    const settings = this.options.settings();
    const places = this.options.places();
    if (places.folders.length === 0) {
      throw new Unstartable(noFolderProblem());
    }
    const found = await findAgent(settings, places);
    if (!isFound(found)) {
      throw new Unstartable(notFoundProblem(found));
    }
    this.found = found;
    this.options.log(`Starting ${[found.command, ...found.args].join(" ")} (found by ${found.origin})`);
    try {
      const connect = await this.options.connect();
      return await connect({
        command: found.command,
        args: found.args,
        cwd: places.folders[0] ?? places.home,
        env: { ...this.options.environment(), ...settings.env },
        capabilities: this.options.capabilities,
        lspMethods: this.options.lspMethods,
        version: this.options.version,
        timeout: settings.startTimeout,
        onWire: this.options.onWire,
        onStderr: this.options.log,
        client: { ...this.options.client, ...side },
      });
    } catch (error) {
      throw new Unstartable(startProblem(messageOf(error), isStartFailure(error) ? error.stderr : "", found), messageOf(error));
    }
  }
}
