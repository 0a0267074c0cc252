import type * as acp from "@agentclientprotocol/sdk";
import type { AgentSettings, Found, Places } from "../core/find.js";
import { findAgent, isFound } from "../core/find.js";
import { messageOf } from "../core/words.js";
import type { SessionSide } from "./host.js";
import type { AgentLink, ClientSide, Command, Connect, OnWire } from "./link.js";
import { isStartFailure, Unstartable } from "./link.js";
import { noFolderProblem, notFoundProblem, startProblem } from "./problems.js";

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

  /** Another command of the program that was found. Throws an Error before there was one. */
  commandLine(args: readonly string[]): Pick<Command, "command" | "args" | "cwd" | "env"> {
    if (this.found === undefined) {
      throw new Error("The agent's program was not found.");
    }
    const { folders, home } = this.options.places();
    const env = { ...this.options.environment(), ...this.options.settings().env };
    return { command: this.found.command, args: [...this.found.args, ...args], cwd: folders[0] ?? home, env };
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
