import type * as acp from "@agentclientprotocol/sdk";
import { aboutOf, subjectOf } from "../core/asked.js";
import type { Attachment, ItemChange, Permission, QueuedPrompt } from "../core/messages.js";
import { Emitter } from "../core/emitter.js";
import type { ToolCalls } from "../core/toolCalls.js";
import { isOver } from "../core/toolCalls.js";
import { Transcript } from "../core/transcript.js";
import type { Facts } from "../core/transcript.js";
import { codeOf, messageOf } from "../core/words.js";
import type { AgentLink } from "./link.js";
import { AUTH_REQUIRED, REQUEST_CANCELLED } from "./link.js";

export type SessionFact = Facts | "running" | "queue" | "permissions" | "loading";

export interface SessionChange {
  readonly items: readonly ItemChange[];
  readonly facts: ReadonlySet<SessionFact>;
  /** The whole conversation was replaced: it was loaded. */
  readonly reset: boolean;
}

/** A question that waits for the user. */
export interface Question extends Permission {
  readonly sessionId: string;
  readonly request: acp.RequestPermissionRequest;
}

/** A prompt as the user wrote it. */
export interface Written {
  readonly text: string;
  readonly attachments: readonly Attachment[];
}

interface Waiting extends Written {
  readonly id: string;
  readonly blocks: acp.ContentBlock[];
}

interface Open {
  question: Question;
  readonly answer: (response: acp.RequestPermissionResponse) => void;
}

const CANCELLED: acp.RequestPermissionResponse = { outcome: { outcome: "cancelled" } };

/** One conversation with the agent, from the client's side. */
export class Session {
  readonly transcript = new Transcript();
  readonly changed: Emitter<SessionChange>;
  /** Reports how a prompt was answered: a login may be needed, or no more. */
  onLogin: (error: unknown) => void = () => undefined;
  /** Prompts not sent because the user stopped: they return to where they were written. */
  onReturned: (prompts: readonly Written[]) => void = () => undefined;
  running = false;
  /** A turn runs that was not asked for here, or before the link to the agent was lost. */
  elsewhere = false;
  stopping = false;
  loading = false;
  turn = 0;
  /** The turn in which the agent last told of its plan. */
  planTurn = 0;
  private readonly queue: Waiting[] = [];
  private readonly open = new Map<string, Open>();
  private nextId = 0;
  private last: { readonly kind: string; readonly messageId: string | null | undefined } | undefined;
  private readonly names = new Map<string, string>();
  /** Calls that the user has rejected. */
  private readonly declined = new Set<string>();
  /** What was read to its end: nobody has to read it twice. */
  private readonly read = new Set<string>();
  /** The prompt that was sent last. */
  private sent: acp.ContentBlock[] = [];

  constructor(
    readonly id: string,
    readonly cwd: string,
    private readonly link: AgentLink,
    private readonly calls: ToolCalls,
    private readonly onError: (error: unknown) => void,
  ) {
    this.changed = new Emitter(onError);
  }

  /** Whether the agent works, whoever asked for it. */
  get working(): boolean {
    return this.running || this.elsewhere;
  }

  /** Whether all of the plan was done before the prompt that was sent last. */
  get planIsOver(): boolean {
    return this.turn > this.planTurn && this.transcript.plan.every(({ status }) => status === "completed");
  }

  get title(): string {
    return this.transcript.title;
  }

  get queued(): readonly QueuedPrompt[] {
    const steers = this.working && field(this.link.initialized._meta?.["steering"], "supported") === true;
    return this.queue.map(({ id, text }) => ({ id, text, now: steers && !text.trimStart().startsWith("/") }));
  }

  get questions(): readonly Question[] {
    return [...this.open.values()].map(({ question }) => question);
  }

  /** Takes over what the answer to `session/new`, `load` or `resume` contains. */
  adopt(answer: { modes?: acp.SessionModeState | null; configOptions?: acp.SessionConfigOption[] | null; _meta?: Meta }): void {
    this.elsewhere = turnOf(answer._meta) === "running";
    this.transcript.modes = answer.modes ?? this.transcript.modes;
    this.transcript.options = answer.configOptions ?? this.transcript.options;
    this.tell(["modes", "options"]);
  }

  apply(said: acp.SessionUpdate): void {
    const update = this.renamed(said);
    if (update.sessionUpdate === "session_info_update" && !this.loading) {
      this.turnIs(turnOf(update._meta));
    }
    if (update.sessionUpdate === "user_message_chunk" && this.loading && !this.isSameMessage(update.messageId)) {
      this.turn += 1;
    }
    this.last = { kind: update.sessionUpdate, messageId: update.sessionUpdate === "user_message_chunk" ? update.messageId : undefined };
    if (update.sessionUpdate === "tool_call" || update.sessionUpdate === "tool_call_update") {
      const declined = this.stopping || this.declined.has(update.toolCallId);
      this.calls.apply(this.id, update, { turn: this.turn, replayed: this.loading, declined });
    }
    if (update.sessionUpdate === "plan") {
      this.planTurn = this.turn;
    }
    const change = this.transcript.apply(update, (toolCallId) => this.isNested(toolCallId));
    if (!this.loading) {
      this.changed.fire({ items: change.items, facts: change.facts, reset: false });
    }
  }

  /** A server tells of turns that others have begun and ended. */
  private turnIs(state: unknown): void {
    if (state === "running" && !this.working) {
      this.elsewhere = true;
      this.turn += 1;
      this.tell(["running"]);
    } else if (state === "idle" && this.elsewhere) {
      this.elsewhere = false;
      this.stopping = false;
      this.calls.endOpen(this.id, "cancelled");
      this.tell(["running"]);
      this.next();
    }
  }

  /** Whether a chunk of a user's message continues the previous one; agents need not send ids. */
  private isSameMessage(messageId: string | null | undefined): boolean {
    return this.last?.kind === "user_message_chunk" && (this.last.messageId ?? undefined) === (messageId ?? undefined);
  }

  /**
   * Ids of tool calls are unique in a session, but some agents count from the start each turn: a call announced with
   * the id of one from an earlier turn gets a new name here.
   */
  private renamed(update: acp.SessionUpdate): acp.SessionUpdate {
    if (update.sessionUpdate !== "tool_call" && update.sessionUpdate !== "tool_call_update") {
      return update;
    }
    const { toolCallId } = update;
    const known = this.calls.get(this.id, this.nameOf(toolCallId));
    if (update.sessionUpdate === "tool_call" && known !== undefined && isOver(known.status) && known.turn < this.turn) {
      this.names.set(toolCallId, `${toolCallId}#${String(this.turn)}`);
    }
    return { ...update, toolCallId: this.nameOf(toolCallId) };
  }

  private nameOf(toolCallId: string): string {
    return this.names.get(toolCallId) ?? toolCallId;
  }

  /** Whether the call's parent is known: one whose parent never arrived is shown by itself. */
  private isNested(toolCallId: string): boolean {
    const parent = this.calls.get(this.id, toolCallId)?.parentId;
    return parent !== undefined && this.calls.get(this.id, parent) !== undefined;
  }

  /** The turn that this window, or the agent, left when it ended. */
  interrupted(): void {
    const notice = this.transcript.notice("warning", "Interrupted.", "The window or the agent was closed while it worked.", "continue");
    this.changed.fire({ items: [notice], facts: new Set(), reset: false });
  }

  loaded(): void {
    this.loading = false;
    if (!this.elsewhere) {
      // Calls that an earlier agent left open will not continue.
      this.calls.endOpen(this.id, "cancelled");
    }
    this.changed.fire({ items: [], facts: new Set(["loading"]), reset: true });
    this.next();
  }

  private next(): void {
    const next = this.working || this.loading ? undefined : this.queue.shift();
    if (next !== undefined) {
      this.tell(["queue"]);
      this.run(next.blocks).catch(this.onError);
    }
  }

  // --- prompts ----------------------------------------------------------------------------------------------------

  /** Sends the prompt, or queues it behind the running one. */
  prompt(text: string, blocks: acp.ContentBlock[], attachments: readonly Attachment[] = []): void {
    if (this.working || this.loading) {
      this.nextId += 1;
      this.queue.push({ id: `q${String(this.nextId)}`, text, attachments, blocks });
      this.tell(["queue"]);
      return;
    }
    this.run(blocks).catch(this.onError);
  }

  unqueue(id: string): void {
    const index = this.queue.findIndex((entry) => entry.id === id);
    if (index >= 0) {
      this.queue.splice(index, 1);
      this.tell(["queue"]);
    }
  }

  /** Lets a queued prompt join the running turn; if none takes it, it stays the next one. */
  async steer(id: string): Promise<void> {
    const entry = this.queue.find((one) => one.id === id);
    if (entry === undefined) {
      return;
    }
    this.queue.splice(this.queue.indexOf(entry), 1);
    this.tell(["queue"]);
    const params = { sessionId: this.id, prompt: entry.blocks, _meta: { steering: { idleBehavior: "promptRequired" } } };
    const answer = await this.link.extension("_session/steering", params).catch(() => undefined);
    if (field(answer, "outcome") === "injected") {
      this.changed.fire({ items: this.transcript.user(entry.blocks), facts: new Set(), reset: false });
    } else if (this.working) {
      this.queue.unshift(entry);
      this.tell(["queue"]);
    } else {
      await this.run(entry.blocks);
    }
  }

  /** Sends the last prompt once more. */
  again(): void {
    if (!this.working && !this.loading && this.sent.length > 0) {
      this.run(this.sent).catch(this.onError);
    }
  }

  private async run(blocks: acp.ContentBlock[]): Promise<void> {
    this.sent = blocks;
    this.running = true;
    this.turn += 1;
    this.changed.fire({ items: this.transcript.user(blocks), facts: new Set(["running", "title"]), reset: false });
    try {
      const { stopReason } = await this.link.request("session/prompt", { sessionId: this.id, prompt: blocks });
      this.ended(stopReason);
      this.onLogin(undefined);
    } catch (error) {
      this.failed(error);
    } finally {
      this.cancelQuestions();
      this.running = false;
      this.stopping = false;
      this.tell(["running"]);
    }
    this.next();
  }

  private ended(reason: acp.StopReason): void {
    // ACP: all calls of the turn have ended before the prompt is answered; nothing more is known of any other.
    this.calls.endOpen(this.id, "cancelled");
    if (reason === "cancelled") {
      this.note("info", "Stopped.");
    } else if (reason === "refusal") {
      this.note("warning", "The model refused to continue.");
    } else if (reason === "max_tokens") {
      this.note("warning", "The answer was cut off: the model's token limit was reached.", 'Send "continue" to go on.');
    } else if (reason === "max_turn_requests") {
      this.note("warning", "The agent reached its limit of requests for one prompt.", 'Send "continue" to go on.');
    }
  }

  private failed(error: unknown): void {
    this.calls.endOpen(this.id, this.stopping ? "cancelled" : "failed");
    const code = codeOf(error);
    if (this.stopping && code === REQUEST_CANCELLED) {
      this.note("info", "Stopped.");
      return;
    }
    this.onLogin(error);
    const words = code === AUTH_REQUIRED ? "" : messageOf(error); // What is needed then is a problem, and said there.
    this.changed.fire({ items: [this.transcript.notice("error", "The prompt failed.", words, "again")], facts: new Set(), reset: false });
    this.giveBack();
  }

  /** `session/cancel`; open questions are answered `cancelled`, as ACP requires of a client. */
  stop(): void {
    if (!this.working || this.stopping) {
      return;
    }
    this.stopping = true;
    this.giveBack();
    this.link.notify("session/cancel", { sessionId: this.id });
    this.cancelQuestions();
    this.tell(["running"]);
  }

  /** Queued prompts are neither sent nor lost after a stop. */
  private giveBack(): void {
    if (this.queue.length > 0) {
      const returned = this.queue.splice(0);
      this.tell(["queue"]);
      this.onReturned(returned);
    }
  }

  /** The agent is gone. */
  abandon(): void {
    this.elsewhere = false;
    this.giveBack();
    this.cancelQuestions();
    this.calls.endOpen(this.id, "failed");
  }

  // --- questions --------------------------------------------------------------------------------------------------

  ask(request: acp.RequestPermissionRequest, signal: AbortSignal): Promise<acp.RequestPermissionResponse> {
    const toolCall = { ...request.toolCall, toolCallId: this.nameOf(request.toolCall.toolCallId) };
    const record = this.calls.apply(this.id, toolCall, { turn: this.turn, replayed: false });
    this.changed.fire({ items: this.transcript.apply({ sessionUpdate: "tool_call_update", ...toolCall }, (id) => this.isNested(id)).items, facts: new Set(), reset: false });
    if (this.stopping || signal.aborted || request.options.length === 0) {
      return Promise.resolve(CANCELLED);
    }
    this.nextId += 1;
    const about = aboutOf(record, request.toolCall._meta, this.cwd);
    const question: Question = {
      id: `p${String(this.nextId)}`,
      sessionId: this.id,
      toolCallId: record.toolCallId,
      title: record.title,
      options: request.options.map(({ optionId, name, kind }) => ({ optionId, name, kind })),
      hasDiff: record.content.some((content) => content.type === "diff"),
      about,
      seen: this.read.has(subjectOf(about)),
      request,
    };
    return new Promise((resolve) => {
      const answer = (response: acp.RequestPermissionResponse): void => {
        if (this.open.delete(question.id)) {
          resolve(response);
          this.tell(["permissions"]);
        }
      };
      this.open.set(question.id, { question, answer });
      signal.addEventListener("abort", () => {
        const isOpen = this.open.has(question.id);
        answer(CANCELLED);
        if (isOpen && this.isServed && codeOf(signal.reason) === REQUEST_CANCELLED) {
          this.note("info", "Answered elsewhere.", question.title);
        }
      });
      this.tell(["permissions"]);
    });
  }

  /** Whether others may be at the session, too. */
  private get isServed(): boolean {
    return this.link.initialized._meta?.["scope"] !== undefined;
  }

  /** The end of what the question is about has been in view. */
  see(questionId: string): void {
    const open = this.open.get(questionId);
    if (open?.question.seen === false) {
      open.question = { ...open.question, seen: true };
      this.read.add(subjectOf(open.question.about));
      this.tell(["permissions"]);
    }
  }

  /** False if the question is no longer open or has no such option. `reason`: of a rejection, for the model. */
  answer(questionId: string, optionId: string, reason = ""): boolean {
    const open = this.open.get(questionId);
    if (open?.question.options.some((option) => option.optionId === optionId) !== true) {
      return false;
    }
    if (open.question.options.find((option) => option.optionId === optionId)?.kind.startsWith("reject") === true) {
      this.declined.add(open.question.toolCallId);
    }
    open.answer({ outcome: { outcome: "selected", optionId, ...(reason === "" ? {} : { _meta: { reason } }) } });
    return true;
  }

  private cancelQuestions(): void {
    for (const { answer } of [...this.open.values()]) {
      answer(CANCELLED);
    }
  }

  // --- choices ----------------------------------------------------------------------------------------------------

  async setMode(modeId: string): Promise<void> {
    await this.link.request("session/set_mode", { sessionId: this.id, modeId });
    if (this.transcript.modes !== null) {
      this.transcript.modes = { ...this.transcript.modes, currentModeId: modeId };
    }
    this.tell(["modes"]);
  }

  async setOption(configId: string, value: string | boolean): Promise<void> {
    const request = { sessionId: this.id, configId };
    const answer = await this.link.request(
      "session/set_config_option",
      typeof value === "boolean" ? { ...request, type: "boolean", value } : { ...request, value },
    );
    this.transcript.options = answer.configOptions;
    this.tell(["options"]);
  }

  note(severity: "info" | "warning" | "error", title: string, text = ""): void {
    this.changed.fire({ items: [this.transcript.notice(severity, title, text)], facts: new Set(), reset: false });
  }

  tell(facts: readonly SessionFact[]): void {
    this.changed.fire({ items: [], facts: new Set(facts), reset: false });
  }
}

type Meta = Readonly<Record<string, unknown>> | null;

function turnOf(meta: Meta | undefined): unknown {
  return field(meta?.["turn"], "state");
}

function field(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}
