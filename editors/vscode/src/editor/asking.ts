import * as vscode from "vscode";
import type { AgentHost } from "../agent/host.js";
import type { ChatView } from "../chat/view.js";
import { blocksOf, rangeAttachment } from "../chat/mentions.js";
import { plain, short } from "../core/words.js";
import { notice } from "./notices.js";

const FIX = vscode.CodeActionKind.QuickFix.append("acpCoder");
/** Documents that code is put into. */
const WRITABLE: ReadonlySet<string> = new Set(["file", "untitled", "vscode-notebook-cell"]);
const REWRITE = vscode.CodeActionKind.RefactorRewrite.append("acpCoder");

/**
 * What can be asked of the agent where one is in the text: to fix or explain a diagnostic, to explain or edit a
 * selection. What it changes is reviewed in place, as after any prompt.
 */
export class Asking implements vscode.CodeActionProvider, vscode.Disposable {
  private readonly registered: vscode.Disposable;
  /** Closes the notification that tells of the end of a turn. */
  private told: () => void = () => undefined;

  constructor(
    private readonly host: AgentHost,
    private readonly chat: ChatView,
  ) {
    this.registered = vscode.Disposable.from(
      vscode.languages.registerCodeActionsProvider({ scheme: "file" }, this, { providedCodeActionKinds: [FIX, REWRITE] }),
      vscode.window.onDidChangeWindowState(() => {
        this.look();
      }),
    );
  }

  dispose(): void {
    this.registered.dispose();
  }

  provideCodeActions({ uri }: vscode.TextDocument, range: vscode.Range, { diagnostics }: vscode.CodeActionContext): vscode.CodeAction[] {
    const action = (title: string, kind: vscode.CodeActionKind, prompt: string, of: vscode.Range): vscode.CodeAction => {
      const made = new vscode.CodeAction(title, kind);
      made.command = { title, command: "acpCoder.ask", arguments: [prompt, uri, of] };
      return made;
    };
    const [first] = diagnostics;
    if (first !== undefined) {
      const said = diagnostics.map(({ message, range: { start } }) => `line ${String(start.line + 1)}: ${message}`).join("\n");
      const what = diagnostics.length === 1 ? "this problem" : "these problems";
      return [
        action("Fix with acp-coder", FIX, `Fix ${what}:\n${said}`, first.range),
        action("Explain with acp-coder", FIX, `Explain ${what}, and how to fix it; change nothing:\n${said}`, first.range),
      ].map((made) => Object.assign(made, { diagnostics: [...diagnostics] }));
    }
    if (range.isEmpty) {
      return [];
    }
    const edit = new vscode.CodeAction("Edit with acp-coder…", REWRITE);
    edit.command = { title: edit.title, command: "acpCoder.editSelection" };
    return [edit, action("Explain with acp-coder", REWRITE, "Explain this; change nothing.", range)];
  }

  /** A prompt about a part of a file, sent at once. */
  async ask(prompt: string, uri: vscode.Uri, range: vscode.Range): Promise<void> {
    const attachments = [rangeAttachment(uri, range)];
    const session = await this.host.ready();
    session.prompt(prompt, await blocksOf(prompt, attachments, this.host), attachments);
  }

  /** What to do with the selection, typed where it stands; the focus stays in the editor. */
  async edit(): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    if (editor === undefined || editor.selection.isEmpty) {
      await vscode.window.showInformationMessage("Select something in an editor first.");
      return;
    }
    const { document } = editor;
    const place = `${vscode.workspace.asRelativePath(document.uri)}:${String(editor.selection.start.line + 1)}`;
    const words = await vscode.window.showInputBox({ title: `Edit ${place}`, prompt: "What should acp-coder do with the selection?", placeHolder: "Use a list comprehension" });
    if (!words) {
      return;
    }
    // A document without a file gets another address with it.
    if (document.isUntitled || (document.isDirty && !(await document.save()))) {
      await vscode.window.showWarningMessage("Save the file first: the agent works on what is saved.");
      return;
    }
    // The selection as it is now: what formats the file when it is saved moves it.
    await this.ask(`${words}\n\nChange only the selected part of the file, and what has to change with it.`, document.uri, editor.selection);
  }

  /** Code of an answer, at the cursor of the editor that was used last. */
  async insert(text: string): Promise<void> {
    const { activeTextEditor: active, visibleTextEditors: others } = vscode.window;
    // Outputs, consoles and sides of a diff are text editors, too.
    const isFile = ({ document: { uri } }: vscode.TextEditor): boolean => WRITABLE.has(uri.scheme);
    const shown = others.filter(isFile);
    const editor = active !== undefined && isFile(active) ? active : shown.length === 1 ? shown[0] : undefined;
    if (editor === undefined) {
      await vscode.window.showInformationMessage("Put the cursor into a file first.");
      return;
    }
    const done = await editor.edit((builder) => {
      builder.replace(editor.selection, text);
    });
    if (!done) {
      await vscode.window.showWarningMessage(plain(`${vscode.workspace.asRelativePath(editor.document.uri)} cannot be changed here.`));
      return;
    }
    await vscode.window.showTextDocument(editor.document, { viewColumn: editor.viewColumn ?? vscode.ViewColumn.Active });
  }

  /** Tells that a turn is over if the window has not the keyboard, until the chat is seen. */
  done(title: string): void {
    if (!vscode.window.state.focused) {
      this.told();
      this.told = notice(`${this.host.name} is done: ${short(title, 60)}`, [{ label: "Show", command: "acpCoder.openChat" }]);
    }
  }

  /** Called whenever what is seen may have changed. */
  look(): void {
    if (vscode.window.state.focused && this.chat.visible) {
      this.told();
      this.told = (): void => undefined;
    }
  }
}
