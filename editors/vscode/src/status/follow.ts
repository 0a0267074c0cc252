import * as vscode from "vscode";
import type { CallRecord, ToolCalls } from "../core/toolCalls.js";
import { isOver } from "../core/toolCalls.js";
import type { Typing } from "./typing.js";

/** Milliseconds within which only the last of several locations is shown. */
const SETTLE = 120;

/** Shows the file and line that the agent is working on, without taking the focus. */
export class FollowMode implements vscode.Disposable {
  private readonly disposables: vscode.Disposable[];
  private timer: NodeJS.Timeout | undefined;
  private next: { path: string; line: number | undefined } | undefined;

  constructor(
    calls: ToolCalls,
    private readonly enabled: () => boolean,
    private readonly isActive: (sessionId: string) => boolean,
    private readonly typing: Typing,
  ) {
    this.disposables = [
      new vscode.Disposable(
        calls.changed.on(({ record, before }) => {
          this.note(record, before);
        }),
      ),
    ];
  }

  dispose(): void {
    clearTimeout(this.timer);
    vscode.Disposable.from(...this.disposables).dispose();
  }

  private note(record: CallRecord, before: CallRecord | undefined): void {
    const place = record.locations.at(-1);
    const old = before?.locations.at(-1);
    const moved = place?.path !== old?.path || place?.line !== old?.line;
    const began = before?.status !== record.status && record.status === "in_progress";
    if (!this.enabled() || place === undefined || record.replayed || !(moved || began) || !this.isActive(record.sessionId) || (isOver(record.status) && !moved)) {
      return;
    }
    this.next = { path: place.path, line: place.line ?? undefined };
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      const { next } = this;
      this.next = undefined;
      if (next !== undefined && !this.typing.now) {
        reveal(next.path, next.line, true).catch(() => undefined);
      }
    }, SETTLE);
  }
}

/** Opens a file at a line (1-based); false if there is no such file that can be shown as text. */
export async function reveal(path: string, line: number | undefined, preserveFocus = false): Promise<boolean> {
  const uri = vscode.Uri.file(path);
  try {
    const { type } = await vscode.workspace.fs.stat(uri);
    if ((type & vscode.FileType.Directory) !== 0) {
      await vscode.commands.executeCommand("revealInExplorer", uri);
      return true;
    }
  } catch {
    return false;
  }
  const column = vscode.window.visibleTextEditors.find((editor) => editor.document.uri.fsPath === path)?.viewColumn;
  const editor = await vscode.window.showTextDocument(uri, {
    preserveFocus,
    preview: true,
    ...(column === undefined ? {} : { viewColumn: column }),
  });
  if (line !== undefined) {
    const at = Math.max(0, Math.min(line - 1, editor.document.lineCount - 1));
    const range = new vscode.Range(at, 0, at, 0);
    if (!preserveFocus) {
      editor.selection = new vscode.Selection(at, 0, at, 0);
    }
    editor.revealRange(range, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
  }
  return true;
}
