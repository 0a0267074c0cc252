import type * as acp from "@agentclientprotocol/sdk";
import type { AgentStatus, Problem } from "../core/messages.js";
import { Emitter } from "../core/emitter.js";
import type { AgentSettings, Found, Places } from "../core/find.js";
import { findAgent, isFound } from "../core/find.js";
import type { ToolCalls } from "../core/toolCalls.js";
import { codeOf, messageOf } from "../core/words.js";
import type { AgentLink, ClientSide, Connect, Ended } from "./link.js";
import { AUTH_REQUIRED, isStartFailure, RESOURCE_NOT_FOUND } from "./link.js";
import { endedProblem, loginProblem, noFolderProblem, notFoundProblem, startProblem, stuckProblem } from "./problems.js";
import type { SessionChange, Written } from "./session.js";
import { Session } from "./session.js";

export interface HostOptions {
  readonly calls: ToolCalls;
  readonly connect: () => Promise<Connect>;
  readonly places: () => Places;
  readonly settings: () => AgentSettings & { readonly env: Readonly<Record<string, string>>; readonly startTimeout: number };
  readonly capabilities: acp.ClientCapabilities;
  readonly lspMethods: readonly string[];
  readonly version: string;
  readonly client: Omit<ClientSide, "update" | "requestPermission">;
  readonly environment: () => Readonly<Record<string, string>>;
  readonly onWire: (direction: "sent" | "received", message: unknown) => void;
  readonly log: (text: string) => void;
}

export type HostChange =
  | { readonly kind: "agent" }
  /** Another session became the active one. */
  | { readonly kind: "active" }
  | { readonly kind: "sessions" }
  /** Queued prompts that are not sent: the user gets them back. */
  | { readonly kind: "returned"; readonly session: Session; readonly prompts: readonly Written[] }
  | { readonly kind: "session"; readonly session: Session; readonly change: SessionChange };

const EARLY_UPDATES = 10_000;
/** Milliseconds for a stopped turn to be answered before the user is offered to restart the agent. */
const STOP_PATIENCE = 10_000;
const LIST_PAGES = 20;

/** The agent of this window: started when first needed, with its sessions, until the window closes. */
export class AgentHost {
  readonly changed: Emitter<HostChange>;
  status: AgentStatus = "stopped";
  problem: Problem | null = null;
  active: Session | undefined;
  /** Where the agent was found; empty until the first start. */
  found: Found | undefined;
  private link: AgentLink | undefined;
  private starting: Promise<AgentLink> | undefined;
  private readying: Promise<Session> | undefined;
  private readonly sessions = new Map<string, Session>();
  /** Some agents send updates of a session before they have answered with its id. */
  private readonly early = new Map<string, acp.SessionUpdate[]>();
  private expecting = 0;

  constructor(private readonly options: HostOptions) {
    this.changed = new Emitter((error) => {
      options.log(`A view failed: ${messageOf(error)}`);
    });
  }

  // --- lifetime of the agent --------------------------------------------------------------------------------------

  get capabilities(): acp.AgentCapabilities {
    return this.link?.initialized.agentCapabilities ?? {};
  }

  get name(): string {
    const info = this.link?.initialized.agentInfo;
    return info?.title ?? info?.name ?? "the agent";
  }

  get authMethods(): readonly acp.AuthMethod[] {
    return this.link?.initialized.authMethods ?? [];
  }

  get running(): AgentLink | undefined {
    return this.link;
  }

  get all(): readonly Session[] {
    return [...this.sessions.values()];
  }

  session(id: string): Session | undefined {
    return this.sessions.get(id);
  }

  /** The running agent, started if necessary. A failure to start is reported as `problem`, and thrown. */
  start(): Promise<AgentLink> {
    if (this.link !== undefined) {
      return Promise.resolve(this.link);
    }
    this.starting ??= this.begin().finally(() => {
      this.starting = undefined;
    });
    return this.starting;
  }

  private async begin(): Promise<AgentLink> {
    this.become("starting", null);
    const settings = this.options.settings();
    const places = this.options.places();
    if (places.folders.length === 0) {
      this.become("failed", noFolderProblem());
      throw new Error(this.problem?.title);
    }
    const found = await findAgent(settings, places);
    if (!isFound(found)) {
      this.become("failed", notFoundProblem(found));
      throw new Error(this.problem?.title);
    }
    this.found = found;
    this.options.log(`Starting ${[found.command, ...found.args].join(" ")} (found by ${found.origin})`);
    try {
      const connect = await this.options.connect();
      const link = await connect({
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
        client: {
          ...this.options.client,
          update: (notification) => {
            this.update(notification);
          },
          requestPermission: (params, signal) => this.ask(params, signal),
        },
      });
      this.link = link;
      link.ended.then(
        (ended) => {
          this.gone(link, ended);
        },
        () => undefined,
      );
      this.become("ready", null);
      return link;
    } catch (error) {
      const stderr = isStartFailure(error) ? error.stderr : "";
      this.become("failed", startProblem(messageOf(error), stderr, found));
      throw error;
    }
  }

  /** Restarts the agent and reopens the active session. */
  async restart(): Promise<void> {
    await this.stop();
    await this.ready();
  }

  /**
   * The active session, ready for prompts: the previous one if the agent had ended, `last` (an id) if there was
   * none in this window yet, else a new one. Concurrent calls create only one.
   */
  ready(last?: string): Promise<Session> {
    const { active } = this;
    if (active !== undefined && this.sessions.get(active.id) === active) {
      return Promise.resolve(active);
    }
    this.readying ??= this.reopen(active?.id ?? last).finally(() => {
      this.readying = undefined;
    });
    return this.readying;
  }

  private async reopen(id: string | undefined): Promise<Session> {
    const link = await this.start();
    if (id !== undefined && this.canOpen(link)) {
      try {
        return await this.openSession(id);
      } catch (error) {
        // It was deleted, or the agent does not keep empty sessions: use a new one.
        this.options.log(`The session could not be reopened: ${messageOf(error)}`);
        if (this.link !== link || codeOf(error) === AUTH_REQUIRED) {
          throw error;
        }
      }
    }
    return await this.newSession();
  }

  private canOpen({ initialized: { agentCapabilities } }: AgentLink): boolean {
    return agentCapabilities?.loadSession === true || (agentCapabilities?.sessionCapabilities?.resume ?? null) !== null;
  }

  async stop(): Promise<void> {
    const link = this.link;
    this.link = undefined;
    this.abandonAll();
    if (link !== undefined) {
      await link.close();
    }
    this.become("stopped", null);
  }

  private gone(link: AgentLink, ended: Ended): void {
    if (this.link === link) {
      this.link = undefined;
      this.abandonAll();
      this.become("failed", endedProblem(ended));
    }
  }

  private abandonAll(): void {
    for (const session of this.sessions.values()) {
      session.abandon();
    }
    this.sessions.clear();
    this.early.clear();
    this.expecting = 0;
  }

  private become(status: AgentStatus, problem: Problem | null): void {
    this.status = status;
    this.problem = problem;
    this.changed.fire({ kind: "agent" });
  }

  solve(): void {
    this.become(this.status, null);
  }

  // --- sessions ---------------------------------------------------------------------------------------------------

  /** Starts a session and makes it the active one. */
  async newSession(): Promise<Session> {
    const link = await this.start();
    const place = this.roots();
    this.expecting += 1;
    try {
      const answer = await link.request("session/new", { ...place, mcpServers: [] });
      const session = this.known(answer.sessionId, place.cwd, link);
      session.adopt(answer);
      this.deliverEarly(session);
      this.lookAt(session);
      this.changed.fire({ kind: "sessions" });
      return session;
    } catch (error) {
      this.refused(error);
      throw error;
    } finally {
      this.expecting -= 1;
    }
  }

  /** Opens an earlier session with `session/load`, or `session/resume` if the agent supports only that. */
  async openSession(id: string, how: "load" | "resume" = "load", cwd?: string): Promise<Session> {
    const link = await this.start();
    const open = this.sessions.get(id);
    if (open !== undefined) {
      this.lookAt(open);
      return open;
    }
    const canResume = (link.initialized.agentCapabilities?.sessionCapabilities?.resume ?? null) !== null;
    const canLoad = link.initialized.agentCapabilities?.loadSession === true;
    if (!canLoad && !canResume) {
      throw new Error(`${this.name} cannot open earlier sessions.`);
    }
    const place = { ...this.roots(), ...(cwd === undefined ? {} : { cwd }) };
    this.options.calls.forget(id);
    const before = this.active;
    const session = this.known(id, place.cwd, link);
    const params = { sessionId: id, ...place, mcpServers: [] };
    session.loading = true;
    this.lookAt(session);
    try {
      session.adopt(
        canLoad && (how === "load" || !canResume)
          ? await link.request("session/load", params)
          : await link.request("session/resume", params),
      );
    } catch (error) {
      this.sessions.delete(id);
      if (this.active === session) {
        this.active = before !== undefined && this.sessions.get(before.id) === before ? before : undefined;
        this.changed.fire({ kind: "active" });
      }
      this.refused(error);
      throw error;
    }
    session.loaded();
    return session;
  }

  /** Shows the conversation as the agent has it now: some of it was taken back, or came back. */
  async reload(session: Session): Promise<void> {
    if (this.capabilities.loadSession !== true || this.sessions.get(session.id) !== session) {
      return;
    }
    this.sessions.delete(session.id);
    try {
      await this.openSession(session.id, "load", session.cwd);
    } catch (error) {
      this.sessions.set(session.id, session);
      this.lookAt(session);
      throw error;
    }
  }

  /** A new session with the conversation before a prompt; it becomes the active one. */
  async fork(session: Session, prompt: number): Promise<Session> {
    const link = await this.start();
    const place = { ...this.roots(), cwd: session.cwd };
    const params = { sessionId: session.id, ...place, mcpServers: [], _meta: { fork: { to: prompt } } };
    const { sessionId } = (await link.extension("session/fork", params)) as acp.NewSessionResponse;
    this.changed.fire({ kind: "sessions" });
    // A fork replays nothing by itself.
    return await this.openSession(sessionId, "load", session.cwd);
  }

  /** All sessions of this folder known to the agent, in its order, newest first. */
  async listSessions(): Promise<acp.SessionInfo[]> {
    const link = await this.start();
    if ((link.initialized.agentCapabilities?.sessionCapabilities?.list ?? null) === null) {
      return [];
    }
    const sessions: acp.SessionInfo[] = [];
    let cursor: string | undefined;
    for (let page = 0; page < LIST_PAGES; page += 1) {
      const answer = await link.request("session/list", { cwd: this.roots().cwd, ...(cursor === undefined ? {} : { cursor }) });
      sessions.push(...answer.sessions);
      cursor = answer.nextCursor ?? undefined;
      if (cursor === undefined) {
        break;
      }
    }
    return sessions;
  }

  async deleteSession(id: string): Promise<void> {
    const link = await this.start();
    const session = this.sessions.get(id);
    session?.stop();
    await link.request("session/delete", { sessionId: id });
    this.sessions.delete(id);
    session?.abandon();
    this.options.calls.forget(id);
    if (this.active?.id === id) {
      this.active = undefined;
      this.changed.fire({ kind: "active" });
    }
    this.changed.fire({ kind: "sessions" });
  }

  /** Makes a known session the active one. */
  look(id: string): void {
    const session = this.sessions.get(id);
    if (session !== undefined && session !== this.active) {
      this.lookAt(session);
    }
  }

  lookAt(session: Session): void {
    this.active = session;
    this.changed.fire({ kind: "active" });
  }

  async login(methodId: string): Promise<void> {
    const link = await this.start();
    await link.request("authenticate", { methodId });
    this.solve();
  }

  /** Turns an answer that requires a login into a problem with the ways to log in. */
  refused(error: unknown): void {
    if (codeOf(error) === AUTH_REQUIRED) {
      this.become(this.status, loginProblem(messageOf(error), this.authMethods));
    }
  }

  private roots(): { cwd: string; additionalDirectories?: string[] } {
    const { folders, home } = this.options.places();
    const [cwd = home, ...more] = folders;
    const several = (this.capabilities.sessionCapabilities?.additionalDirectories ?? null) !== null;
    return several && more.length > 0 ? { cwd, additionalDirectories: more } : { cwd };
  }

  private known(id: string, cwd: string, link: AgentLink): Session {
    const session = new Session(id, cwd, link, this.options.calls, (error) => {
      this.options.log(messageOf(error));
    });
    session.onLogin = (error) => {
      this.refused(error);
    };
    session.onReturned = (prompts) => {
      this.changed.fire({ kind: "returned", session, prompts });
    };
    let patience: NodeJS.Timeout | undefined;
    let stuck: Problem | null = null;
    session.changed.on((change) => {
      if (change.facts.has("running")) {
        clearTimeout(patience);
        if (session.stopping) {
          patience = setTimeout(() => {
            stuck = stuckProblem();
            this.become(this.status, stuck);
          }, STOP_PATIENCE);
        } else if (stuck !== null && this.problem === stuck) {
          this.solve();
        }
      }
      this.changed.fire({ kind: "session", session, change });
    });
    this.sessions.set(id, session);
    return session;
  }

  // --- messages from the agent ------------------------------------------------------------------------------------

  private update({ sessionId, update }: acp.SessionNotification): void {
    const session = this.sessions.get(sessionId);
    if (session !== undefined) {
      session.apply(update);
    } else if (this.expecting > 0) {
      const waiting = this.early.get(sessionId) ?? [];
      this.early.set(sessionId, waiting);
      if (waiting.length < EARLY_UPDATES) {
        waiting.push(update);
      }
    }
  }

  private deliverEarly(session: Session): void {
    for (const update of this.early.get(session.id) ?? []) {
      session.apply(update);
    }
    this.early.delete(session.id);
  }

  private ask(params: acp.RequestPermissionRequest, signal: AbortSignal): Promise<acp.RequestPermissionResponse> {
    const session = this.sessions.get(params.sessionId);
    if (session === undefined) {
      return Promise.reject(Object.assign(new Error(`unknown session ${params.sessionId}`), { code: RESOURCE_NOT_FOUND }));
    }
    return session.ask(params, signal);
  }
}
