import type { ContentBlock } from "@agentclientprotocol/sdk";
import type { Forms } from "../agent/forms.js";
import type { AgentHost, HostChange } from "../agent/host.js";
import type { Session, SessionFact } from "../agent/session.js";
import type { Undo } from "../agent/undo.js";
import type { TerminalFacts } from "../core/cards.js";
import { cardOf } from "../core/cards.js";
import type { Emitter } from "../core/emitter.js";
import { MODES, pickersOf } from "../core/pickers.js";
import { labelIn } from "../core/uris.js";
import type { CallRecord, ToolCalls } from "../core/toolCalls.js";
import type { Attachment, ChatFacts, ChatState, Form, FromView, Picker, StartFacts, ToolCard, ToView } from "../core/messages.js";
import { Outbox } from "./outbox.js";

const FACTS: Readonly<Record<SessionFact, readonly (keyof ChatFacts)[]>> = {
  title: ["session"],
  plan: ["plan", "planOf"],
  usage: ["usage"],
  commands: ["commands"],
  modes: ["pickers"],
  options: ["pickers"],
  running: ["running", "stopping", "plan", "planOf"],
  queue: ["queue"],
  permissions: ["permissions", "waiting"],
  loading: ["loading"],
};

/** What a chat has of the place it stands in: a window of VS Code or a browser. */
export interface ChatPlace {
  readonly post: (message: ToView) => void;
  readonly terminals: { readonly changed: Emitter<string>; facts(terminalId: string): TerminalFacts | undefined };
  readonly forms: Forms;
  /** The first start, where the agent's program is on this machine. */
  readonly start?: { readonly now: StartFacts | null; readonly changed: Emitter<undefined> };
  /** A prompt as the agent gets it. */
  readonly blocks: (text: string, attachments: readonly Attachment[]) => ContentBlock[] | Promise<ContentBlock[]>;
  /** The session that a prompt goes to. */
  readonly session: () => Promise<Session>;
}

/** The chat without its page: all state is in the host and the calls, so the page may come and go. */
export class Chat {
  private isReady = false;
  private sending: Promise<void> = Promise.resolve();
  private readonly outbox: Outbox;
  private readonly waiting: ToView[] = [];
  private readonly ends: readonly (() => void)[];

  constructor(
    private readonly host: AgentHost,
    private readonly calls: ToolCalls,
    private readonly undo: Undo,
    private readonly place: ChatPlace,
  ) {
    this.outbox = new Outbox({
      facts: (keys) => this.facts(keys),
      tool: (id) => this.card(id),
      post: (message) => {
        this.post(message);
      },
    });
    this.ends = [
      host.changed.on((change) => {
        this.onHost(change);
      }),
      calls.changed.on(({ record }) => {
        this.onCall(record);
      }),
      undo.changed.on(() => {
        this.outbox.fact("prompts", "changes");
      }),
      place.forms.changed.on(() => {
        this.outbox.fact("form");
      }),
      place.start?.changed.on(() => {
        this.outbox.fact("start");
      }) ?? ((): void => undefined),
      place.terminals.changed.on((terminalId) => {
        this.onTerminal(terminalId);
      }),
    ];
  }

  dispose(): void {
    this.outbox.clear();
    for (const end of this.ends) {
      end();
    }
  }

  /** The page is gone, or hidden: the next one says that it is ready. */
  left(): void {
    this.isReady = false;
  }

  // --- from the agent ---------------------------------------------------------------------------------------------

  private onHost(change: HostChange): void {
    if (change.kind === "agent") {
      this.outbox.fact("agent", "problem", "images", "may");
    } else if (change.kind === "active") {
      this.whole();
    } else if (change.kind === "returned") {
      // Including those of inactive sessions: what was written is not lost.
      for (const { text, attachments } of change.prompts) {
        this.send({ type: "compose", text, attachments });
      }
    } else if (change.kind === "session" && change.session !== this.host.active) {
      if (change.change.facts.has("permissions")) {
        this.outbox.fact("waiting");
      }
    } else if (change.kind === "session") {
      if (change.change.reset) {
        this.whole();
        return;
      }
      for (const item of change.change.items) {
        this.outbox.item(item);
      }
      for (const fact of change.change.facts) {
        this.outbox.fact(...FACTS[fact]);
      }
    }
  }

  private onCall(record: CallRecord): void {
    const session = this.host.active;
    if (session?.id === record.sessionId && !session.loading) {
      this.outbox.tool(record.toolCallId);
    }
  }

  private onTerminal(terminalId: string): void {
    const session = this.host.active;
    for (const record of session === undefined ? [] : this.calls.list(session.id)) {
      if (record.content.some((content) => content.type === "terminal" && content.terminalId === terminalId)) {
        this.outbox.tool(record.toolCallId);
      }
    }
  }

  // --- to the page ------------------------------------------------------------------------------------------------

  private whole(): void {
    this.outbox.clear();
    if (this.isReady) {
      this.post({ type: "state", state: this.state() });
    }
  }

  private state(): ChatState {
    const session = this.host.active;
    const shown = session === undefined || session.loading ? undefined : session;
    return {
      ...this.everything(),
      items: shown?.transcript.items ?? [],
      tools: shown === undefined ? [] : this.calls.list(shown.id).map((record) => cardOf(record, (id) => this.place.terminals.facts(id), shown.cwd)),
    };
  }

  private facts(keys: ReadonlySet<keyof ChatFacts>): Partial<ChatFacts> {
    const everything = this.everything();
    return Object.fromEntries([...keys].map((key) => [key, everything[key]]));
  }

  private everything(): ChatFacts {
    const { host } = this;
    const session = host.active;
    const transcript = session?.transcript;
    return {
      agent: { status: host.status, name: host.name },
      problem: host.problem,
      start: this.place.start?.now ?? null,
      session: session === undefined ? null : { id: session.id, title: session.title },
      loading: session?.loading ?? host.status === "starting",
      running: session?.working ?? false,
      stopping: session?.stopping ?? false,
      plan: session?.planIsOver === true ? [] : (transcript?.plan ?? []),
      planOf: { turn: session?.planTurn ?? 0, runs: session?.working === true && session.planTurn === session.turn },
      usage: transcript?.usage ?? null,
      commands: (transcript?.commands ?? []).map(({ name, description, input }) => ({ name, description, ...(input ? { hint: input.hint } : {}) })),
      pickers: pickersOf(transcript?.options ?? [], transcript?.modes ?? null),
      permissions: (session?.questions ?? []).map(({ id, toolCallId, title, options, hasDiff, about, seen }) => ({ id, toolCallId, title, options, hasDiff, about, seen })),
      waiting: host.questions.length,
      form: this.form(),
      queue: session?.queued ?? [],
      prompts: this.undo.facts,
      changes: this.undo.left.map((change) => {
        const { added, removed } = this.undo.keeps.left(change);
        return { path: change.path, label: labelIn(session?.cwd, change.path), added, removed, cache: change.cache };
      }),
      images: host.capabilities.promptCapabilities?.image === true,
      may: host.may,
    };
  }

  /** The form that waits; with its session's name where that is not plain. */
  private form(): Form | null {
    const form = this.place.forms.now;
    const session = this.host.all.length > 1 && form !== null ? this.host.session(form.sessionId) : undefined;
    return form === null || session === undefined ? form : { ...form, from: session.title === "" ? "Untitled" : session.title };
  }

  private card(toolCallId: string): ToolCard | undefined {
    const session = this.host.active;
    const record = session === undefined ? undefined : this.calls.get(session.id, toolCallId);
    return record === undefined ? undefined : cardOf(record, (id) => this.place.terminals.facts(id), session?.cwd);
  }

  picker(id: string): Picker | undefined {
    return this.everything().pickers.find((one) => one.id === id);
  }

  /** Runs now, or when the page is ready. */
  send(message: ToView): void {
    if (this.isReady) {
      this.outbox.flush();
      this.post(message);
    } else {
      this.waiting.push(message);
    }
  }

  private post(message: ToView): void {
    if (this.isReady) {
      this.place.post(message);
    }
  }

  // --- from the page ----------------------------------------------------------------------------------------------

  /** What concerns the conversation alone; returns any other message, which the place has to handle. */
  async receive(message: FromView): Promise<FromPlace | undefined> {
    const session = this.host.active;
    switch (message.type) {
      case "ready":
        this.isReady = true;
        this.whole();
        for (const waiting of this.waiting.splice(0)) {
          this.post(waiting);
        }
        return undefined;
      case "send":
        await this.prompt(message.text, message.attachments);
        return undefined;
      case "stop":
        session?.stop();
        return undefined;
      case "again":
        session?.again();
        return undefined;
      case "steer":
        await session?.steer(message.id);
        return undefined;
      case "unqueue":
        session?.unqueue(message.id);
        return undefined;
      case "seen":
        session?.see(message.id);
        return undefined;
      case "permission":
        session?.answer(message.id, message.optionId, message.reason);
        return undefined;
      case "dismiss":
        this.host.solve();
        return undefined;
      case "form":
        this.place.forms.answer(message.id, message.answer);
        return undefined;
      case "pick":
        await pick(session, message.id, message.value);
        return undefined;
      default:
        return message;
    }
  }

  /** Returns unsent prompts to the input box. */
  private prompt(text: string, attachments: readonly Attachment[]): Promise<void> {
    // In order: what was sent first comes first, even if its attachments take longer to read.
    const sent = this.sending.then(() => this.promptNow(text, attachments));
    this.sending = sent.catch(() => undefined);
    return sent;
  }

  private async promptNow(text: string, attachments: readonly Attachment[]): Promise<void> {
    try {
      const session = await this.place.session();
      session.prompt(text, await this.place.blocks(text, attachments), attachments);
    } catch (error) {
      this.send({ type: "compose", text, attachments });
      if (this.host.problem === null) {
        throw error;
      }
    }
  }
}

/** Messages that need more than the conversation: an editor or a dialog. */
export type FromPlace = Exclude<FromView, { type: "ready" | "send" | "stop" | "again" | "steer" | "unqueue" | "seen" | "permission" | "form" | "dismiss" | "pick" }>;

async function pick(session: Session | undefined, id: string, value: string | boolean): Promise<void> {
  if (id === MODES && typeof value === "string") {
    await session?.setMode(value);
  } else {
    await session?.setOption(id, value);
  }
}
