import { randomBytes } from "node:crypto";
import * as vscode from "vscode";
import type { AgentHost, HostChange } from "../agent/host.js";
import type { Session, SessionFact } from "../agent/session.js";
import type { Undo } from "../agent/undo.js";
import { cardOf } from "../core/cards.js";
import { MODES, pickersOf } from "../core/pickers.js";
import type { CallRecord, ToolCalls } from "../core/toolCalls.js";
import { messageOf } from "../core/words.js";
import type { Terminals } from "../editor/terminals.js";
import { blocksOf, complete } from "./mentions.js";
import type { Attachment, ChatFacts, ChatState, FromView, ToolCard, ToView } from "../core/messages.js";
import { Outbox } from "./outbox.js";

export const CHAT_VIEW = "acpCoder.chat";

/** Commands that the view's buttons may run (`FromView` of the type `command`). */
const COMMANDS: ReadonlySet<string> = new Set([
  "acpCoder.openSettings",
  "acpCoder.restart",
  "acpCoder.showLog",
  "acpCoder.useUvx",
  "acpCoder.login",
  "acpCoder.newSession",
  "acpCoder.openFolder",
  "acpCoder.answer",
  "acpCoder.sessions.focus",
  "acpCoder.redo",
]);

const FACTS: Readonly<Record<SessionFact, readonly (keyof ChatFacts)[]>> = {
  title: ["session"],
  plan: ["plan", "planOf"],
  usage: ["usage"],
  commands: ["commands"],
  modes: ["pickers"],
  options: ["pickers"],
  running: ["running", "stopping", "planOf"],
  queue: ["queue"],
  permissions: ["permissions"],
  loading: ["loading"],
};

/** The chat: a webview that draws the active session. All state is here; the view may come and go. */
export class ChatView implements vscode.WebviewViewProvider, vscode.Disposable {
  private view: vscode.WebviewView | undefined;
  private isReady = false;
  private sending: Promise<void> = Promise.resolve();
  private readonly outbox: Outbox;
  private readonly waiting: ToView[] = [];
  private readonly disposables: vscode.Disposable[];
  /** Called when the view first exists. */
  onOpened: () => void = () => undefined;
  /** Called when it becomes visible or hidden. */
  onVisibility: () => void = () => undefined;

  constructor(
    private readonly extension: vscode.Uri,
    private readonly host: AgentHost,
    private readonly calls: ToolCalls,
    private readonly terminals: Terminals,
    private readonly undo: Undo,
  ) {
    this.outbox = new Outbox({
      facts: (keys) => this.facts(keys),
      tool: (id) => this.card(id),
      post: (message) => {
        this.post(message);
      },
    });
    this.disposables = [
      vscode.window.registerWebviewViewProvider(CHAT_VIEW, this),
      new vscode.Disposable(
        host.changed.on((change) => {
          this.onHost(change);
        }),
      ),
      new vscode.Disposable(
        calls.changed.on(({ record }) => {
          this.onCall(record);
        }),
      ),
      new vscode.Disposable(
        undo.changed.on(() => {
          this.outbox.fact("prompts");
        }),
      ),
      new vscode.Disposable(
        terminals.changed.on((terminalId) => {
          this.onTerminal(terminalId);
        }),
      ),
    ];
  }

  dispose(): void {
    this.outbox.clear();
    vscode.Disposable.from(...this.disposables).dispose();
  }

  get visible(): boolean {
    return this.view?.visible === true;
  }

  resolveWebviewView(view: vscode.WebviewView): void {
    this.view = view;
    this.isReady = false;
    const { webview } = view;
    webview.options = { enableScripts: true, localResourceRoots: [vscode.Uri.joinPath(this.extension, "dist", "webview")] };
    webview.onDidReceiveMessage((message: FromView) => {
      this.receive(message).catch((error: unknown) => {
        this.host.active?.note("error", "That did not work.", messageOf(error));
      });
    });
    view.onDidChangeVisibility(() => {
      // VS Code discards the page of a hidden view; the next one reports that it is ready.
      this.isReady = this.isReady && view.visible;
      this.onVisibility();
    });
    view.onDidDispose(() => {
      this.view = undefined;
      this.isReady = false;
    });
    webview.html = this.html(webview);
    this.onOpened();
  }

  /** Puts text and attachments into the input box, and shows it. */
  async compose(text: string, attachments: readonly Attachment[]): Promise<void> {
    this.send({ type: "compose", text, attachments });
    await this.show();
  }

  /** Shows the chat, with the keyboard in its input box. */
  async show(): Promise<void> {
    await vscode.commands.executeCommand(`${CHAT_VIEW}.focus`);
    this.send({ type: "focus" });
  }

  /** Shows the question that waits, with the keyboard in what it is about. */
  async showQuestion(): Promise<void> {
    await vscode.commands.executeCommand(`${CHAT_VIEW}.focus`);
    this.send({ type: "focus", question: true });
  }

  async reveal(toolCallId: string): Promise<void> {
    await vscode.commands.executeCommand(`${CHAT_VIEW}.focus`);
    this.send({ type: "reveal", toolCallId });
  }

  // --- from the agent ---------------------------------------------------------------------------------------------

  private onHost(change: HostChange): void {
    if (change.kind === "agent") {
      this.outbox.fact("agent", "problem", "images");
    } else if (change.kind === "active") {
      this.whole();
    } else if (change.kind === "returned") {
      // Including those of inactive sessions: what was written is not lost.
      for (const { text, attachments } of change.prompts) {
        this.send({ type: "compose", text, attachments });
      }
    } else if (change.kind === "session" && change.session === this.host.active) {
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

  // --- to the view ------------------------------------------------------------------------------------------------

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
      tools: shown === undefined ? [] : this.calls.list(shown.id).map((record) => cardOf(record, (id) => this.terminals.facts(id))),
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
      session: session === undefined ? null : { id: session.id, title: session.title },
      loading: session?.loading ?? host.status === "starting",
      running: session?.running ?? false,
      stopping: session?.stopping ?? false,
      plan: transcript?.plan ?? [],
      planOf: { turn: session?.planTurn ?? 0, runs: session?.running === true && session.planTurn === session.turn },
      usage: transcript?.usage ?? null,
      commands: (transcript?.commands ?? []).map(({ name, description, input }) => ({ name, description, ...(input ? { hint: input.hint } : {}) })),
      pickers: pickersOf(transcript?.options ?? [], transcript?.modes ?? null),
      permissions: (session?.questions ?? []).map(({ id, toolCallId, title, options, hasDiff, about, seen }) => ({ id, toolCallId, title, options, hasDiff, about, seen })),
      queue: session?.queued ?? [],
      prompts: this.undo.facts,
      images: host.capabilities.promptCapabilities?.image === true,
    };
  }

  private card(toolCallId: string): ToolCard | undefined {
    const session = this.host.active;
    const record = session === undefined ? undefined : this.calls.get(session.id, toolCallId);
    return record === undefined ? undefined : cardOf(record, (id) => this.terminals.facts(id));
  }

  /** Runs now, or when the view is ready. */
  private send(message: ToView): void {
    if (this.isReady) {
      this.outbox.flush();
      this.post(message);
    } else {
      this.waiting.push(message);
    }
  }

  private post(message: ToView): void {
    if (this.isReady) {
      this.view?.webview.postMessage(message).then(undefined, () => undefined);
    }
  }

  // --- from the view ----------------------------------------------------------------------------------------------

  private async receive(message: FromView): Promise<void> {
    const session = this.host.active;
    switch (message.type) {
      case "ready":
        this.isReady = true;
        this.whole();
        for (const waiting of this.waiting.splice(0)) {
          this.post(waiting);
        }
        return;
      case "send":
        await this.prompt(message.text, message.attachments);
        return;
      case "stop":
        session?.stop();
        return;
      case "steer":
        await session?.steer(message.id);
        return;
      case "unqueue":
        session?.unqueue(message.id);
        return;
      case "seen":
        session?.see(message.id);
        return;
      case "permission":
        session?.answer(message.id, message.optionId);
        return;
      case "pick":
        await pick(session, message.id, message.value);
        return;
      case "restore":
      case "fork":
        await vscode.commands.executeCommand(`acpCoder.${message.type}`, message.prompt);
        return;
      case "complete":
        this.post({ type: "completions", request: message.request, entries: await complete(message.query) });
        return;
      case "openLocation":
        await vscode.commands.executeCommand("acpCoder.openLocation", message.path, message.line);
        return;
      case "openDiff":
        await vscode.commands.executeCommand("acpCoder.showDiff", { sessionId: session?.id, toolCallId: message.toolCallId, index: message.index });
        return;
      case "openOutput":
        await vscode.commands.executeCommand("acpCoder.showOutput", { sessionId: session?.id, toolCallId: message.toolCallId });
        return;
      case "openTerminal":
        await vscode.commands.executeCommand("acpCoder.showTerminal", message.terminalId);
        return;
      case "openLink":
        await vscode.commands.executeCommand("acpCoder.openLink", message.href);
        return;
      case "command":
        if (COMMANDS.has(message.command)) {
          await vscode.commands.executeCommand(message.command, ...(message.argument === undefined ? [] : [message.argument]));
        }
        return;
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
      const session = await this.host.ready();
      session.prompt(text, await blocksOf(text, attachments, this.host), attachments);
    } catch (error) {
      this.send({ type: "compose", text, attachments });
      if (this.host.problem === null) {
        throw error;
      }
    }
  }

  private html(webview: vscode.Webview): string {
    const folder = vscode.Uri.joinPath(this.extension, "dist", "webview");
    const uri = (name: string): string => webview.asWebviewUri(vscode.Uri.joinPath(folder, name)).toString();
    const nonce = randomBytes(16).toString("base64url");
    const policy = [
      "default-src 'none'",
      `img-src ${webview.cspSource} data:`,
      // Preact sets no inline styles itself; scripts set widths of bars on elements, which CSP allows.
      `style-src ${webview.cspSource}`,
      `font-src ${webview.cspSource}`,
      `script-src 'nonce-${nonce}'`,
    ].join("; ");
    return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="UTF-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1.0">
<link rel="stylesheet" href="${uri("chat.css")}">
<title>Chat</title>
</head>
<body>
<div id="root" data-highlight="${uri("highlight.js")}"></div>
<script nonce="${nonce}" src="${uri("chat.js")}"></script>
</body>
</html>`;
  }
}

async function pick(session: Session | undefined, id: string, value: string | boolean): Promise<void> {
  if (id === MODES && typeof value === "string") {
    await session?.setMode(value);
  } else {
    await session?.setOption(id, value);
  }
}
