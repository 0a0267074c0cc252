import { Emitter } from "../core/emitter.js";
import type { StartFacts, StartModels } from "../core/messages.js";
import { messageOf } from "../core/words.js";
import type { AgentHost } from "./host.js";
import type { Program } from "./program.js";

/** The login method of acp-coder, whose command this drives: other agents' are left to a terminal. */
const METHOD = "login";
/** Behind the model that the agent uses already. */
const USED = / \(in use\)$/u;

/** The first start: a provider, a key for it, a model, and the start with them, by the agent's own commands. */
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

  /** Those that the agent can use there, as the server lists them; chosen is what it uses, or would. Throws if it cannot be asked. */
  async models(provider: string): Promise<StartModels> {
    const lines = (await this.program.output(["models", provider])).split("\n").filter((line) => line !== "");
    const name = (line: string): string => line.replace(USED, "").replace(`${provider}/`, "");
    return { provider, names: lines.map(name), chosen: name(lines.find((line) => USED.test(line)) ?? lines[0] ?? "") };
  }

  async store(provider: string, key: string): Promise<void> {
    await this.program.output([METHOD, provider], key);
  }

  /** Starts the agent with a model of this provider; empty: with the provider's own first one. */
  async begin(provider: string, model: string): Promise<void> {
    await this.program.output(["config", "set", "agent.provider", provider]);
    await this.program.output(["config", "set", "agent.model", model === "" ? "" : `${provider}/${model}`]);
    await this.host.restart();
  }

  // --- from the card ----------------------------------------------------------------------------------------------

  /** Stores the key, if there is one, and shows the models. */
  async offer(provider: string, key: string): Promise<void> {
    await this.work(async () => {
      if (key !== "") {
        await this.store(provider, key);
      }
      const none: StartModels = { provider, names: [], chosen: "" };
      try {
        this.show({ models: await this.models(provider) });
      } catch (error) {
        this.show({ models: none, error: messageOf(error) });
      }
    });
  }

  choose(chosen: string): void {
    if (this.now?.models) {
      this.show({ models: { ...this.now.models, chosen } });
    }
  }

  async beginWith(model: string): Promise<void> {
    const provider = this.now?.models?.provider;
    if (provider !== undefined) {
      await this.work(() => this.begin(provider, model));
    }
  }

  back(): void {
    this.show({ models: null, error: "" });
  }

  private async work(run: () => Promise<void>): Promise<void> {
    this.show({ busy: true, error: "" });
    try {
      await run();
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
        this.now = providers.length > 0 ? { providers, models: null, busy: false, error: "" } : null;
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
