import * as vscode from "vscode";
import { GoingBack } from "../agent/goingBack.js";
import type { AgentHost } from "../agent/host.js";
import type { Undo } from "../agent/undo.js";
import type { Attachment } from "../core/messages.js";
import type { What } from "../core/undo.js";
import type { UndoChange, UndoConflict, UndoHunk, UndoResponse } from "../core/undoMethods.js";
import { sum } from "../core/undo.js";
import { plain, plural, short, withoutIcons } from "../core/words.js";
import type { Previews } from "./previews.js";

interface Choice extends vscode.QuickPickItem {
  /** Whether the user's own changes are merged; `undefined`: do nothing. */
  readonly merge?: boolean;
  /** It only tells something. */
  readonly told?: boolean;
}

/** Takes back what the agent did, with VS Code's own questions; the preview is open while the user decides. */
export class Restoring {
  private readonly back: GoingBack;

  constructor(
    host: AgentHost,
    private readonly undo: Undo,
    private readonly previews: Previews,
    chat: { compose: (text: string, attachments: readonly Attachment[]) => Promise<void> },
  ) {
    this.back = new GoingBack(host, undo, {
      pickWhat,
      confirm: (outcome, verb, title) => this.confirm(outcome, verb, title),
      tell,
      compose: (text, attachments) => chat.compose(text, attachments),
    });
  }

  /** To before a prompt: files, conversation or both. */
  async restore(prompt: number): Promise<void> {
    await this.back.restore(prompt);
  }

  /** What is left to look at of the last prompt's changes; the chat stays. */
  async takeBack(): Promise<void> {
    await this.back.takeBack();
  }

  async redo(): Promise<void> {
    await this.back.redo();
  }

  /** A new session that goes on from before a prompt, with that prompt in the box. */
  async fork(prompt: number): Promise<void> {
    await this.back.fork(prompt);
  }

  /** What is left to look at of one file, or one of its hunks, to what it was before a prompt. */
  async revert(change: UndoChange, since: number, hunk?: UndoHunk): Promise<void> {
    const session = this.back.session();
    const target = this.undo.targetOf(change, since, hunk);
    try {
      const { conflicts } = await this.undo.preview(session, target);
      const [conflict] = conflicts;
      if (conflict === undefined) {
        tell(await this.undo.run(session, target));
        return;
      }
      const merge = "Merge";
      const chosen = await vscode.window.showWarningMessage(plain(`Not reverted: ${nameOf(conflict)}.`), ...(conflict.mergeable ? [merge] : []));
      if (chosen === merge) {
        tell(await this.undo.run(session, target, true));
      }
    } catch (error) {
      this.undo.soon(); // What is listed may be older than the file.
      throw error;
    }
  }

  private async confirm(outcome: UndoResponse, verb: string, title: string): Promise<boolean | undefined> {
    if (outcome.changes.length > 0) {
      await this.previews.all(outcome.changes, title);
    }
    try {
      return await this.ask(outcome, verb, title);
    } finally {
      await this.previews.close(title);
    }
  }

  /** Whether to merge; `undefined`: not to do it. The question stays open while the user reads the preview. */
  private async ask(outcome: UndoResponse, verb: string, title: string): Promise<boolean | undefined> {
    const { changes, conflicts, words } = outcome;
    const mergeable = conflicts.filter((conflict) => conflict.mergeable).length;
    const items: Choice[] = [
      { label: `$(discard) ${verb}`, description: changes.length === 0 ? "no file changes" : sum(changes), merge: false },
      ...(mergeable === 0 ? [] : [{ label: `$(git-merge) ${verb}, and merge ${plural(mergeable, "file")} that you have changed`, merge: true }]),
      { label: "$(close) Cancel" },
      ...(conflicts.length === 0 ? [] : [{ label: "left alone", kind: vscode.QuickPickItemKind.Separator }]),
      ...conflicts.map((conflict) => ({ label: `$(warning) ${withoutIcons(nameOf(conflict))}`, told: true })),
    ];
    const placeHolder = short(words, 120) || "The preview shows what will change";
    const chosen = await vscode.window.showQuickPick(items, { title, placeHolder, ignoreFocusOut: true });
    return chosen?.told === true ? await this.ask(outcome, verb, title) : chosen?.merge;
  }
}

async function pickWhat(title: string): Promise<What | undefined> {
  const items: (vscode.QuickPickItem & { readonly what: What })[] = [
    { label: "Files and chat", description: "as before this prompt", what: "both" },
    { label: "Files", description: "the chat stays", what: "files" },
    { label: "Chat", description: "the files stay", what: "conversation" },
  ];
  return (await vscode.window.showQuickPick(items, { title: `Restore to before “${title}”`, placeHolder: "What do you want to restore?" }))?.what;
}

function tell({ words, done }: UndoResponse): void {
  const shown = plain(words === "" ? (done ? "Done." : "Nothing was changed.") : words);
  const message = done ? vscode.window.showInformationMessage(shown) : vscode.window.showWarningMessage(shown);
  message.then(undefined, () => undefined);
}

function nameOf({ path, why }: UndoConflict): string {
  return `${vscode.workspace.asRelativePath(path)}: ${why}`;
}
