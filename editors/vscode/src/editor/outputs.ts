import * as vscode from "vscode";
import { outputOf } from "../core/cards.js";
import type { CallRecord, ToolCalls } from "../core/toolCalls.js";
import { short } from "../core/words.js";
import type { Terminals } from "./terminals.js";

const SCHEME = "acp-output";
const REFRESH = 200;

/** The complete input and output of a tool call, as a document that stays up to date. */
export class Outputs implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly emitter = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.emitter.event;
  private readonly disposables: vscode.Disposable[];
  private readonly stale = new Map<string, vscode.Uri>();
  private readonly shown = new Map<string, vscode.Uri>();
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly calls: ToolCalls,
    private readonly terminals: Terminals,
  ) {
    this.disposables = [
      this.emitter,
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      new vscode.Disposable(
        calls.changed.on(({ record }) => {
          this.note(record);
        }),
      ),
      new vscode.Disposable(
        terminals.changed.on((terminalId) => {
          for (const record of calls.running()) {
            if (record.content.some((content) => content.type === "terminal" && content.terminalId === terminalId)) {
              this.note(record);
            }
          }
        }),
      ),
    ];
  }

  dispose(): void {
    clearTimeout(this.timer);
    vscode.Disposable.from(...this.disposables).dispose();
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    const { sessionId, toolCallId } = JSON.parse(uri.query) as { sessionId: string; toolCallId: string };
    const record = this.calls.get(sessionId, toolCallId);
    return record === undefined
      ? "This tool call is no longer known: reopen its session.\n"
      : outputOf(record, (terminalId) => this.terminals.text(terminalId));
  }

  async open(record: CallRecord): Promise<void> {
    const { sessionId, toolCallId } = record;
    const name = short(record.title, 50).replace(/[/\\?#%]/gu, " ").trim() || "Tool call";
    const uri = this.shown.get(keyOf(record)) ?? vscode.Uri.from({ scheme: SCHEME, path: `/${name}.md`, query: JSON.stringify({ sessionId, toolCallId }) });
    this.shown.set(keyOf(record), uri);
    await vscode.window.showTextDocument(await vscode.workspace.openTextDocument(uri), { preview: true });
  }

  private note(record: CallRecord): void {
    const uri = this.shown.get(keyOf(record));
    if (uri === undefined) {
      return;
    }
    this.stale.set(uri.toString(), uri);
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      for (const stale of this.stale.values()) {
        this.emitter.fire(stale);
      }
      this.stale.clear();
    }, REFRESH);
  }
}

function keyOf({ sessionId, toolCallId }: CallRecord): string {
  return `${sessionId} ${toolCallId}`;
}
