import type * as acp from "@agentclientprotocol/sdk";
import type { AgentStatus, May, Problem } from "../core/messages.js";
import { Emitter } from "../core/emitter.js";
import type { ToolCalls } from "../core/toolCalls.js";
import { codeOf, messageOf } from "../core/words.js";
import type { AgentLink, ConversationSide, Ended } from "./link.js";
import { AUTH_REQUIRED, isUnstartable, RESOURCE_NOT_FOUND } from "./link.js";
import type { Question, SessionChange, Written } from "./session.js";
import { Session } from "./session.js";

/** What the host tells the agent's connection to do with what the agent says of sessions. */
export type SessionSide = Pick<ConversationSide, "update" | "requestPermission">;

export interface HostOptions {
  readonly calls: ToolCalls;
  /** Starts the agent, or connects to it. Throws an `Unstartable` with what can be done. */
  readonly start: (side: SessionSide) => Promise<AgentLink>;
  /** Absolute paths of the folders that sessions work in, the first as `cwd`. */
  readonly folders: () => readonly [string, ...string[]];
  readonly problems: Problems;
  readonly log: (text: string) => void;
}

/** What this client says, and offers to do, about what keeps the user from working. */
export interface Problems {
  /** `null`: it comes back by itself. */
  readonly ended: (ended: Ended) => Problem | null;
  readonly stuck: () => Problem;
  readonly login: (message: string, methods: readonly acp.AuthMethod[]) => Problem;
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

/** The agent of this window or page: started when first needed, with its sessions, until the window closes. */
export class AgentHost {
  readonly changed: Emitter<HostChange>;
  status: AgentStatus = "stopped";
  problem: Problem | null = null;
  private loginProblem: Problem | null = null;
  active: Session | undefined;
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

  /** Whether the agent is acp-coder, whose program has commands besides. */
  get isOwn(): boolean {
    return this.link?.initialized.agentInfo?.name === "acp-coder";
  }

  get authMethods(): readonly acp.AuthMethod[] {
    return this.link?.initialized.authMethods ?? [];
  }

  /** By the scope that a server gave this client (`_meta.scope` of the answer to `initialize`). */
  get may(): May {
    const scope = this.link?.initialized._meta?.["scope"];
    return { prompt: scope !== "watch" && scope !== "approve", answer: scope !== "watch" };
  }

  get running(): AgentLink | undefined {
    return this.link;
  }

  get all(): readonly Session[] {
    return [...this.sessions.values()];
  }

  /** That wait for the user, of all sessions. */
  get questions(): readonly Question[] {
    return this.all.flatMap((session) => session.questions);
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
    try {
      const link = await this.options.start({
        update: (notification) => {
          this.update(notification);
        },
        requestPermission: (params, signal) => this.ask(params, signal),
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
      this.become("failed", isUnstartable(error) ? error.problem : { title: "The agent did not start.", detail: messageOf(error), actions: [] });
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
    this.readying ??= this.reopen(active?.id ?? last, active?.cwd).finally(() => {
      this.readying = undefined;
    });
    return this.readying;
  }

  private async reopen(id: string | undefined, cwd: string | undefined): Promise<Session> {
    const link = await this.start();
    if (id !== undefined && this.canOpen(link)) {
      try {
        return await this.openSession(id, "load", cwd);
      } catch (error) {
        // It was deleted, or the agent does not keep empty sessions: use a new one.
        this.options.log(`The session could not be reopened: ${messageOf(error)}`);
        if (this.link !== link || codeOf(error) === AUTH_REQUIRED) {
          throw error;
        }
      }
    }
    return await this.newSession(cwd);
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
      this.become("failed", this.options.problems.ended(ended));
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

  /** Whether the problem is that the agent has no key. */
  get needsLogin(): boolean {
    return this.problem !== null && this.problem === this.loginProblem;
  }

  solve(): void {
    this.become(this.status, null);
  }

  // --- sessions ---------------------------------------------------------------------------------------------------

  /** Starts a session, in `cwd` if given, and makes it the active one. */
  async newSession(cwd?: string): Promise<Session> {
    const link = await this.start();
    const place = this.roots(cwd);
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
    const place = this.roots(cwd);
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
    const place = this.roots(session.cwd);
    const params = { sessionId: session.id, ...place, mcpServers: [], _meta: { fork: { to: prompt } } };
    const { sessionId } = (await link.extension("session/fork", params)) as acp.NewSessionResponse;
    this.changed.fire({ kind: "sessions" });
    // A fork replays nothing by itself.
    return await this.openSession(sessionId, "load", session.cwd);
  }

  /** All sessions of this folder known to the agent, in its order, newest first. */
  async listSessions(): Promise<acp.SessionInfo[]> {
    const sessions: acp.SessionInfo[] = [];
    let cursor: string | undefined;
    for (let page = 0; page < LIST_PAGES; page += 1) {
      const answer = await this.pageOfSessions(cursor, this.roots().cwd);
      sessions.push(...answer.sessions);
      cursor = answer.nextCursor ?? undefined;
      if (cursor === undefined) {
        break;
      }
    }
    return sessions;
  }

  /** The sessions behind `cursor`, of one folder or of all. */
  async pageOfSessions(cursor?: string, cwd?: string): Promise<acp.ListSessionsResponse> {
    const link = await this.start();
    if ((link.initialized.agentCapabilities?.sessionCapabilities?.list ?? null) === null) {
      return { sessions: [] };
    }
    return await link.request("session/list", { ...(cwd === undefined ? {} : { cwd }), ...(cursor === undefined ? {} : { cursor }) });
  }

  /** Ends it at the agent, which keeps it: it can be opened again. */
  async closeSession(id: string): Promise<void> {
    const session = this.sessions.get(id);
    if (session !== undefined && (this.capabilities.sessionCapabilities?.close ?? null) !== null) {
      session.stop();
      await this.link?.request("session/close", { sessionId: id });
    }
    this.leave(id);
  }

  async deleteSession(id: string): Promise<void> {
    const link = await this.start();
    const session = this.sessions.get(id);
    session?.stop();
    await link.request("session/delete", { sessionId: id });
    this.leave(id);
  }

  private leave(id: string): void {
    const session = this.sessions.get(id);
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

  lookAt(session: Session | undefined): void {
    this.active = session;
    this.changed.fire({ kind: "active" });
  }

  async login(methodId: string): Promise<void> {
    const link = await this.start();
    await link.request("authenticate", { methodId });
    this.solve();
  }

  /** Turns an answer that requires a login into a problem with the ways to log in; any other answer ends it. */
  refused(error: unknown): void {
    if (codeOf(error) === AUTH_REQUIRED) {
      this.loginProblem = this.options.problems.login(messageOf(error), this.authMethods);
      this.become(this.status, this.loginProblem);
    } else if (this.needsLogin) {
      this.solve();
    }
  }

  private roots(folder?: string): { cwd: string; additionalDirectories?: string[] } {
    const [first, ...more] = this.options.folders();
    const several = (this.capabilities.sessionCapabilities?.additionalDirectories ?? null) !== null;
    return { cwd: folder ?? first, ...(several && more.length > 0 ? { additionalDirectories: more } : {}) };
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
    let patience: ReturnType<typeof setTimeout> | undefined;
    let stuck: Problem | null = null;
    session.changed.on((change) => {
      if (change.facts.has("running")) {
        clearTimeout(patience);
        if (session.stopping) {
          patience = setTimeout(() => {
            stuck = this.options.problems.stuck();
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
