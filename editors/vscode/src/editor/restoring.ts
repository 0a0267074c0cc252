import * as vscode from "vscode";
import type { AgentHost } from "../agent/host.js";
import type { Session } from "../agent/session.js";
import type { Target, Undo } from "../agent/undo.js";
import { sentAgain } from "../core/contentBlocks.js";
import type { Attachment } from "../core/messages.js";
import type { Change, Conflict, Hunk, Outcome, What } from "../core/undo.js";
import { sum } from "../core/undo.js";
import { plain, plural, short, withoutIcons } from "../core/words.js";
import type { Previews } from "./previews.js";

interface Choice extends vscode.QuickPickItem {
  /** Whether the user's own changes are merged; `undefined`: do nothing. */
  readonly merge?: boolean;
  /** It only tells something. */
  readonly told?: boolean;
}

/** Takes back what the agent did: shows what would happen, asks once, and does it. */
export class Restoring {
  constructor(
    private readonly host: AgentHost,
    private readonly undo: Undo,
    private readonly previews: Previews,
    private readonly chat: { compose: (text: string, attachments: readonly Attachment[]) => Promise<void> },
  ) {}

  /** To before a prompt: files, conversation or both. */
  async restore(prompt: number): Promise<void> {
    const session = this.session();
    const what = await pickWhat(this.titleOf(prompt));
    const written = this.writtenAs(prompt);
    if (what === undefined) {
      return;
    }
    const done = await this.confirmed(session, { to: prompt, what }, "Restore", `Restore to before “${this.titleOf(prompt)}”`);
    if (done && what !== "files" && written !== undefined) {
      await this.chat.compose(written.text, written.attachments);
    }
  }

  async redo(): Promise<void> {
    await this.confirmed(this.session(), "redo", "Redo", "Redo what was taken back");
  }

  /** A new session that goes on from before a prompt, with that prompt in the box. */
  async fork(prompt: number): Promise<void> {
    const written = this.writtenAs(prompt);
    await this.host.fork(this.session(), prompt);
    await this.chat.compose(written?.text ?? "", written?.attachments ?? []);
  }

  /** One file, or one of its hunks, to what it was before a prompt. */
  async revert(change: Change, since: number, hunk?: Hunk): Promise<void> {
    const session = this.session();
    const target = { path: change.path, since, ...(hunk === undefined ? {} : { hunks: [change.hunks.indexOf(hunk)], expect: [hunk.id] }) };
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

  /** Shows what would happen, and asks. Returns whether it was done. */
  private async confirmed(session: Session, target: Target, verb: string, title: string): Promise<boolean> {
    const outcome = await this.undo.preview(session, target);
    if (outcome.changes.length > 0) {
      await this.previews.all(outcome.changes, title);
    }
    try {
      const merge = await this.ask(outcome, verb, title);
      if (merge === undefined) {
        return false;
      }
      const result = await this.undo.run(session, target, merge);
      tell(result);
      return result.done;
    } finally {
      await this.previews.close(title);
    }
  }

  /** Whether to merge; `undefined`: not to do it. The question stays open while the user reads the preview. */
  private async ask(outcome: Outcome, verb: string, title: string): Promise<boolean | undefined> {
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

  private session(): Session {
    const { active } = this.host;
    if (active === undefined || !this.undo.available) {
      throw new Error(`${this.host.name} cannot take back changes.`);
    }
    return active;
  }

  private titleOf(prompt: number): string {
    const title = this.undo.now.checkpoints.list.find((checkpoint) => checkpoint.prompt === prompt)?.title ?? "";
    return title === "" ? `prompt ${String(prompt)}` : short(title, 60);
  }

  private writtenAs(prompt: number): { readonly text: string; readonly attachments: readonly Attachment[] } | undefined {
    const { of } = this.undo.facts;
    const item = this.host.active?.transcript.items.find(({ id }) => of[id] === prompt);
    return item?.type === "user" ? { text: item.text, attachments: item.attachments.flatMap(sentAgain) } : undefined;
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

function tell({ words, done }: Outcome): void {
  const shown = plain(words === "" ? (done ? "Done." : "Nothing was changed.") : words);
  const message = done ? vscode.window.showInformationMessage(shown) : vscode.window.showWarningMessage(shown);
  message.then(undefined, () => undefined);
}

function nameOf({ path, why }: Conflict): string {
  return `${vscode.workspace.asRelativePath(path)}: ${why}`;
}
