import type { SessionInfo } from "@agentclientprotocol/sdk";
import { randomBytes } from "node:crypto";
import * as vscode from "vscode";
import type { FirstStart } from "../agent/firstStart.js";
import type { Forms } from "../agent/forms.js";
import type { AgentHost } from "../agent/host.js";
import type { Program } from "../agent/program.js";
import type { Undo } from "../agent/undo.js";
import type { Attachment, FromView } from "../core/messages.js";
import type { ToolCalls } from "../core/toolCalls.js";
import { messageOf, plural, withoutIcons } from "../core/words.js";
import { mayRestart } from "../editor/interrupting.js";
import { pickModel } from "../editor/modelPicker.js";
import type { TypedCommands } from "../editor/typedCommands.js";
import type { Terminals } from "../editor/terminals.js";
import { Chat } from "./chat.js";
import { blocksOf, complete } from "./mentions.js";

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
  "acpCoder.locate",
  "acpCoder.openWalkthrough",
]);

/** The chat as a webview, which draws the active session and may come and go. */
export class ChatView implements vscode.WebviewViewProvider, vscode.Disposable {
  private view: vscode.WebviewView | undefined;
  private readonly chat: Chat;
  private readonly registered: vscode.Disposable;
  /** Called when the view first exists. */
  onOpened: () => void = () => undefined;
  /** Called when it becomes visible or hidden. */
  onVisibility: () => void = () => undefined;

  constructor(
    private readonly extension: vscode.Uri,
    private readonly host: AgentHost,
    calls: ToolCalls,
    terminals: Terminals,
    undo: Undo,
    private readonly forms: Forms,
    private readonly start: FirstStart,
    private readonly commands: TypedCommands,
    program: Program,
  ) {
    this.chat = new Chat(host, calls, undo, {
      forms,
      start,
      terminals,
      blocks: (text, attachments) => blocksOf(text, attachments, host, (id) => program.output(["sessions", "show", id])),
      session: () => host.ready(),
      post: (message) => {
        this.view?.webview.postMessage(message).then(undefined, () => undefined);
      },
    });
    this.registered = vscode.Disposable.from(
      vscode.window.registerWebviewViewProvider(CHAT_VIEW, this),
      new vscode.Disposable(host.changed.on(this.badge)),
      new vscode.Disposable(forms.changed.on(this.badge)),
    );
  }

  dispose(): void {
    this.chat.dispose();
    this.registered.dispose();
  }

  /** How many questions wait: the same number in the status bar and on the card. */
  private readonly badge = (): void => {
    const count = waiting(this.host, this.forms);
    if (this.view !== undefined && (this.view.badge?.value ?? 0) !== count) {
      this.view.badge = count === 0 ? undefined : { value: count, tooltip: `${plural(count, "question")} for you` };
    }
  };

  get visible(): boolean {
    return this.view?.visible === true;
  }

  resolveWebviewView(view: vscode.WebviewView): void {
    this.view = view;
    this.chat.left();
    const { webview } = view;
    webview.options = { enableScripts: true, localResourceRoots: [vscode.Uri.joinPath(this.extension, "dist", "webview")] };
    webview.onDidReceiveMessage((message: FromView) => {
      this.receive(message).catch((error: unknown) => {
        this.host.active?.note("error", "That did not work.", messageOf(error));
      });
    });
    view.onDidChangeVisibility(() => {
      // VS Code discards the page of a hidden view; the next one reports that it is ready.
      if (!view.visible) {
        this.chat.left();
      }
      this.onVisibility();
    });
    view.onDidDispose(() => {
      this.view = undefined;
      this.chat.left();
    });
    webview.html = this.html(webview);
    this.badge();
    this.onOpened();
  }

  /** Puts text and attachments into the input box, and shows it. */
  async compose(text: string, attachments: readonly Attachment[]): Promise<void> {
    this.chat.send({ type: "compose", text, attachments });
    await this.show();
  }

  /** Shows the chat, with the keyboard in its input box. */
  async show(): Promise<void> {
    await vscode.commands.executeCommand(`${CHAT_VIEW}.focus`);
    this.chat.send({ type: "focus" });
  }

  /** Shows the question that waits, with the keyboard in what it is about. */
  async showQuestion(): Promise<void> {
    await vscode.commands.executeCommand(`${CHAT_VIEW}.focus`);
    this.chat.send({ type: "focus", question: true });
  }

  async reveal(toolCallId: string): Promise<void> {
    await vscode.commands.executeCommand(`${CHAT_VIEW}.focus`);
    this.chat.send({ type: "reveal", toolCallId });
  }

  // --- from the view ----------------------------------------------------------------------------------------------

  private async receive(said: FromView): Promise<void> {
    const message = await this.chat.receive(said);
    const session = this.host.active;
    switch (message?.type) {
      case undefined:
        return;
      case "restore":
      case "fork":
        await vscode.commands.executeCommand(`acpCoder.${message.type}`, message.prompt);
        return;
      case "complete":
        this.chat.send({ type: "completions", request: message.request, entries: await complete(message.query, this.commands, this.host.isOwn ? (): Promise<SessionInfo[]> => this.others() : undefined) });
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
      case "change":
        await vscode.commands.executeCommand("acpCoder.reviewChanges", message.act, message.path);
        return;
      case "insert":
        await vscode.commands.executeCommand("acpCoder.insertCode", message.text);
        return;
      case "choose":
        await this.choose(message.id);
        return;
      case "start":
        await this.start.offer(message.provider, message.key);
        return;
      case "startModel":
        await this.chooseModel();
        return;
      case "startWith":
        if (await mayRestart(this.host)) {
          await this.start.beginWith(message.model);
        }
        return;
      case "startAgain":
        this.start.back();
        return;
      case "command":
        if (COMMANDS.has(message.command)) {
          await vscode.commands.executeCommand(message.command, ...(message.argument === undefined ? [] : [message.argument]));
        }
        return;
    }
  }

  private async others(): Promise<SessionInfo[]> {
    return (await this.host.listSessions()).filter(({ sessionId }) => sessionId !== this.host.active?.id);
  }

  private async chooseModel(): Promise<void> {
    const models = this.start.now?.models;
    const chosen = models && (await pickModel(models));
    if (chosen !== undefined && chosen !== null) {
      this.start.choose(chosen);
    }
  }

  /** The choices of a picker, to be searched. */
  private async choose(id: string): Promise<void> {
    const picker = this.chat.picker(id);
    if (picker === undefined) {
      return;
    }
    type Entry = vscode.QuickPickItem & { readonly value?: string };
    const items: Entry[] = [];
    let group: string | undefined;
    for (const choice of picker.choices) {
      if (choice.group !== group) {
        group = choice.group;
        items.push({ label: group ?? "", kind: vscode.QuickPickItemKind.Separator });
      }
      const current = choice.value === picker.value ? "current" : "";
      items.push({ label: withoutIcons(choice.name), description: current, detail: choice.description ?? "", value: choice.value });
    }
    const chosen = await vscode.window.showQuickPick(items, { title: picker.name, placeHolder: picker.description ?? picker.name, matchOnDetail: true, matchOnDescription: true });
    if (chosen?.value !== undefined && chosen.value !== picker.value) {
      await this.chat.receive({ type: "pick", id, value: chosen.value });
    }
    this.chat.send({ type: "focus" });
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

/** How many questions wait for the user, a form among them. */
export function waiting(host: AgentHost, forms: Forms): number {
  return host.questions.length + (forms.now === null ? 0 : 1);
}
