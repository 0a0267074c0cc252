import { Emitter } from "../core/emitter.js";
import type { StartFacts } from "../core/messages.js";
import { messageOf } from "../core/words.js";
import type { AgentHost } from "./host.js";
import type { Program } from "./program.js";

/** The login method of acp-coder, whose command this drives: other agents' are left to a terminal. */
const METHOD = "login";

/** The first start: a provider, a key for it, and the start with both, by the agent's own commands. */
export class FirstStart {
  readonly changed = new Emitter<undefined>();
  /** What the card shows, while a login is needed. */
  now: StartFacts | null = null;
  private looking = false;

  constructor(
    private readonly host: AgentHost,
    private readonly program: Program,
  ) {
    host.changed.on((change) => {
      if (change.kind === "agent") {
        this.look().catch(() => undefined);
      }
    });
  }

  /** Whether keys can be stored by the agent's command. */
  get available(): boolean {
    return this.program.found !== undefined && this.host.isOwn && this.host.authMethods.some(({ id }) => id === METHOD);
  }

  /** Whether a way to log in is this one. */
  serves(methodId: unknown): boolean {
    return this.available && (methodId === undefined || methodId === METHOD);
  }

  /** The providers that the agent knows, in its order. */
  async providers(): Promise<StartFacts["providers"]> {
    return (await this.program.output([METHOD, "--list"])).split("\n").flatMap((line) => {
      const [, id = "", detail = "", key] = /^(\S+) {2}(.*?)(?: \((has a key: .*)\))?$/u.exec(line) ?? [];
      return id === "" ? [] : [{ id, detail, hasKey: key !== undefined }];
    });
  }

  /** Stores the key, if there is one, and starts the agent with this provider. */
  async begin(provider: string, key: string): Promise<void> {
    this.show({ busy: true, error: "" });
    try {
      if (key !== "") {
        await this.program.output([METHOD, provider], key);
      }
      await this.program.output(["config", "set", "agent.provider", provider]);
      await this.host.restart();
    } catch (error) {
      if (!this.host.needsLogin) {
        throw error;
      }
      this.show({ error: messageOf(error) });
    } finally {
      this.show({ busy: false });
    }
  }

  private async look(): Promise<void> {
    if (!this.host.needsLogin || !this.available) {
      if (this.now !== null && !this.now.busy) {
        this.now = null;
        this.changed.fire(undefined);
      }
    } else if (this.now === null && !this.looking) {
      this.looking = true;
      try {
        const providers = await this.providers();
        this.now = providers.length > 0 ? { providers, busy: false, error: "" } : null;
      } finally {
        this.looking = false;
      }
      this.changed.fire(undefined);
    }
  }

  private show(change: Partial<StartFacts>): void {
    if (this.now !== null) {
      this.now = this.host.needsLogin || change.busy !== false ? { ...this.now, ...change } : null;
      this.changed.fire(undefined);
    }
  }
}
