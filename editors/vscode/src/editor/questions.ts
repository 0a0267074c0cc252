import * as vscode from "vscode";
import type { AgentHost } from "../agent/host.js";
import type { Question } from "../agent/session.js";
import type { ToolCalls } from "../core/toolCalls.js";
import { short } from "../core/words.js";
import { callOfDiff } from "./diffs.js";
import type { Diffs } from "./diffs.js";

type Kind = Question["options"][number]["kind"];

/**
 * Permission requests outside the chat: their diffs open in the diff editor, whose title bar has the answers; where the
 * chat is not seen, a notification asks. Every way leads to the same question, and the first answer counts.
 */
export class Questions implements vscode.Disposable {
  private readonly seen = new Set<string>();
  private readonly disposables: vscode.Disposable[];

  constructor(
    private readonly host: AgentHost,
    private readonly calls: ToolCalls,
    private readonly diffs: Diffs,
    private readonly chat: { readonly visible: boolean; show: () => Promise<void> },
    private readonly openDiffs: () => boolean,
  ) {
    this.disposables = [
      new vscode.Disposable(
        host.changed.on((change) => {
          if (change.kind !== "session" || change.change.facts.has("permissions")) {
            this.refresh().catch(() => undefined);
          }
        }),
      ),
      vscode.window.tabGroups.onDidChangeTabs(() => {
        this.context().catch(() => undefined);
      }),
      vscode.window.onDidChangeActiveTextEditor(() => {
        this.context().catch(() => undefined);
      }),
    ];
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables).dispose();
  }

  get open(): readonly Question[] {
    return this.host.all.flatMap((session) => session.questions);
  }

  /** A quick pick with the options as the agent gave them, for the question of the diff that is seen, or the oldest. */
  async pick(): Promise<void> {
    const question = this.current();
    if (question === undefined) {
      await vscode.window.showInformationMessage("The agent asks nothing at the moment.");
      return;
    }
    const items = question.options.map((option) => ({ label: `$(${ICONS[option.kind]}) ${option.name}`, option }));
    const chosen = await vscode.window.showQuickPick(items, { title: question.title, placeHolder: "Answer the agent's question", ignoreFocusOut: true });
    if (chosen !== undefined) {
      this.answer(question, chosen.option.optionId);
    }
  }

  /** Answers with the first option of a kind; nothing where there is none. */
  answerWith(kind: Kind): void {
    const question = this.current();
    const option = question?.options.find((candidate) => candidate.kind === kind);
    if (question !== undefined && option !== undefined) {
      this.answer(question, option.optionId);
    }
  }

  private answer(question: Question, optionId: string): void {
    if (this.host.session(question.sessionId)?.answer(question.id, optionId) !== true) {
      vscode.window.showInformationMessage("This question was answered already.").then(undefined, () => undefined);
    }
  }

  private current(): Question | undefined {
    const shown = this.shownCall();
    return this.open.find((question) => question.toolCallId === shown?.toolCallId && question.sessionId === shown.sessionId) ?? this.open[0];
  }

  private shownCall(): { sessionId: string; toolCallId: string } | undefined {
    const input: unknown = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
    return input instanceof vscode.TabInputTextDiff ? callOfDiff(input.modified) : undefined;
  }

  private async refresh(): Promise<void> {
    const { open } = this;
    await this.context();
    for (const question of open) {
      const key = `${question.sessionId} ${question.id}`;
      if (!this.seen.has(key)) {
        this.seen.add(key);
        await this.present(question);
      }
    }
  }

  private async present(question: Question): Promise<void> {
    const record = this.calls.get(question.sessionId, question.toolCallId);
    if (question.hasDiff && record !== undefined && this.openDiffs()) {
      await this.diffs.openAll(record, true);
      await this.context();
    }
    if (!this.chat.visible || this.host.active?.id !== question.sessionId) {
      this.notify(question);
    }
  }

  private notify(question: Question): void {
    const names = question.options.map(({ name }) => name);
    vscode.window.showWarningMessage(`${this.host.name} asks: ${short(question.title, 200)}`, ...names).then(
      (chosen) => {
        const option = question.options.find(({ name }) => name === chosen);
        if (option !== undefined) {
          this.answer(question, option.optionId);
        }
      },
      () => undefined,
    );
  }

  /** What the menus depend on: whether there is a question, and whether the diff that is seen belongs to one. */
  private async context(): Promise<void> {
    const shown = this.shownCall();
    const question = this.open.find(({ toolCallId, sessionId }) => toolCallId === shown?.toolCallId && sessionId === shown.sessionId);
    const kinds = new Set(question?.options.map(({ kind }) => kind));
    await Promise.all([
      vscode.commands.executeCommand("setContext", "acpAgent.question", this.open.length > 0),
      vscode.commands.executeCommand("setContext", "acpAgent.diffQuestion", question !== undefined),
      vscode.commands.executeCommand("setContext", "acpAgent.diffAllowOnce", kinds.has("allow_once")),
      vscode.commands.executeCommand("setContext", "acpAgent.diffRejectOnce", kinds.has("reject_once")),
    ]);
  }
}

const ICONS: Readonly<Record<Kind, string>> = { allow_once: "check", allow_always: "check-all", reject_once: "x", reject_always: "circle-slash" };
