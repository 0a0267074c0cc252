import * as vscode from "vscode";
import type { AgentHost } from "../agent/host.js";
import type { Question } from "../agent/session.js";
import type { ToolCalls } from "../core/toolCalls.js";
import { plain, short, withoutIcons } from "../core/words.js";
import { callOfDiff } from "./diffs.js";
import type { Diffs } from "./diffs.js";

interface Pause {
  readonly pause: (needed: () => boolean) => Promise<boolean>;
}

type Kind = Question["options"][number]["kind"];

const SHOW = "Show the question";
const NOTIFIED_CHARS = 200;

/**
 * Permission requests outside the chat: their diffs open in the diff editor, whose title bar has the answers; while the
 * chat is not visible, a notification asks. All of them lead to the same question, and the first answer counts.
 */
export class Questions implements vscode.Disposable {
  private readonly seen = new Set<string>();
  private readonly notified = new Set<string>();
  /** Calls whose diff was opened here, not by the user. */
  private readonly opened = new Set<string>();
  private readonly disposables: vscode.Disposable[];

  constructor(
    private readonly host: AgentHost,
    private readonly calls: ToolCalls,
    private readonly diffs: Diffs,
    private readonly chat: { readonly visible: boolean; show: () => Promise<void> },
    private readonly openDiffs: () => boolean,
    private readonly typing: Pause,
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

  /** A quick pick with the agent's options, for the question of the visible diff, or the oldest. */
  async pick(): Promise<void> {
    const question = this.current();
    if (question === undefined) {
      await vscode.window.showInformationMessage("The agent is not asking anything right now.");
      return;
    }
    const items = question.options.map((option) => ({ label: `$(${ICONS[option.kind]}) ${withoutIcons(option.name)}`, option }));
    const chosen = await vscode.window.showQuickPick(items, { title: question.title, placeHolder: reasonOf(question) || "Answer the agent's question", ignoreFocusOut: true });
    if (chosen !== undefined) {
      this.answer(question, chosen.option.optionId);
    }
  }

  /**
   * Answers the question that the user sees with the first option of a kind: that of the visible diff, else the only
   * one of the active session. In doubt it shows all options, with what they are about.
   */
  async answerWith(kind: Kind): Promise<void> {
    const isDiff = this.shownTab() !== undefined;
    const ofSession = this.host.active?.questions ?? [];
    const question = isDiff ? this.ofShownDiff() : ofSession.length === 1 && this.chat.visible ? ofSession[0] : undefined;
    const option = question?.options.find((candidate) => candidate.kind === kind);
    if (question !== undefined && option !== undefined) {
      this.answer(question, option.optionId);
    } else if (isDiff && question === undefined) {
      await vscode.window.showInformationMessage("This question has already been answered.");
    } else {
      await this.pick();
    }
  }

  private answer(question: Question, optionId: string): void {
    if (this.host.session(question.sessionId)?.answer(question.id, optionId) !== true) {
      vscode.window.showInformationMessage("This question has already been answered.").then(undefined, () => undefined);
    }
  }

  private current(): Question | undefined {
    return this.ofShownDiff() ?? this.host.active?.questions[0] ?? this.open[0];
  }

  private ofShownDiff(): Question | undefined {
    const shown = this.shownTab();
    return this.open.find((question) => question.toolCallId === shown?.toolCallId && question.sessionId === shown.sessionId);
  }

  private shownTab(): { sessionId: string; toolCallId: string } | undefined {
    const input: unknown = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
    return input instanceof vscode.TabInputTextDiff ? callOfDiff(input.modified) : undefined;
  }

  private async refresh(): Promise<void> {
    const { open } = this;
    await this.context();
    await this.closeAnswered();
    const fresh = open.filter(({ sessionId, id }) => !this.seen.has(`${sessionId} ${id}`));
    for (const { sessionId, id } of fresh) {
      this.seen.add(`${sessionId} ${id}`);
    }
    for (const question of fresh) {
      await this.present(question);
    }
  }

  /** Closes what was opened automatically once the question is answered; the card opens it again. */
  private async closeAnswered(): Promise<void> {
    const waiting = new Set(this.open.map(({ sessionId, toolCallId }) => `${sessionId} ${toolCallId}`));
    const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs).filter(({ input }) => {
      const call = input instanceof vscode.TabInputTextDiff ? callOfDiff(input.modified) : undefined;
      const key = call === undefined ? "" : `${call.sessionId} ${call.toolCallId}`;
      return this.opened.has(key) && !waiting.has(key);
    });
    for (const key of [...this.opened].filter((opened) => !waiting.has(opened))) {
      this.opened.delete(key);
    }
    if (tabs.length > 0) {
      await vscode.window.tabGroups.close(tabs, true);
    }
  }

  private async present(question: Question): Promise<void> {
    this.notifyUnseen();
    const isOpen = (): boolean => this.open.some(({ id, sessionId }) => id === question.id && sessionId === question.sessionId);
    const first = this.calls.get(question.sessionId, question.toolCallId)?.content.findIndex(({ type }) => type === "diff") ?? -1;
    // A diff that opens takes the key presses of someone typing in the editor that it covers.
    if (first >= 0 && this.openDiffs() && (await this.typing.pause(isOpen))) {
      const record = this.calls.get(question.sessionId, question.toolCallId);
      if (record !== undefined) {
        this.opened.add(`${record.sessionId} ${record.toolCallId}`);
        await this.diffs.open(record, first, true);
        await this.context();
      }
    }
  }

  /** Called once for each question that waits while it is not visible. */
  notifyUnseen(): void {
    for (const question of this.open) {
      const key = `${question.sessionId} ${question.id}`;
      if (!this.notified.has(key) && (!this.chat.visible || this.host.active?.id !== question.sessionId)) {
        this.notified.add(key);
        this.notify(question);
      }
    }
  }

  private notify(question: Question): void {
    // Nobody should approve what they cannot read to its end.
    const whole = question.title.length <= NOTIFIED_CHARS;
    // None of four long buttons would be fully readable; the others are with the question.
    const once = question.options.filter(({ kind }) => kind === "allow_once" || kind === "reject_once").map(({ name }) => name);
    const names = whole ? [...once, SHOW] : [SHOW];
    vscode.window.showWarningMessage(plain(`${this.host.name} asks: ${short(question.title, NOTIFIED_CHARS)}`), ...names).then(
      (chosen) => {
        if (chosen === SHOW) {
          this.host.look(question.sessionId);
          this.chat.show().catch(() => undefined);
          return;
        }
        const option = question.options.find(({ name }) => name === chosen);
        if (option !== undefined) {
          this.answer(question, option.optionId);
        }
      },
      () => undefined,
    );
  }

  /** Context for the menus: whether there is a question, and whether the visible diff belongs to one. */
  private async context(): Promise<void> {
    const question = this.ofShownDiff();
    const kinds = new Set(question?.options.map(({ kind }) => kind));
    await Promise.all([
      vscode.commands.executeCommand("setContext", "acpCoder.question", this.open.length > 0),
      vscode.commands.executeCommand("setContext", "acpCoder.diffQuestion", question !== undefined),
      vscode.commands.executeCommand("setContext", "acpCoder.diffAllowOnce", kinds.has("allow_once")),
      vscode.commands.executeCommand("setContext", "acpCoder.diffRejectOnce", kinds.has("reject_once")),
    ]);
  }
}

/** What the agent says about its question, besides its title and the diff. */
function reasonOf({ request, title }: Question): string {
  const texts = (request.toolCall.content ?? []).flatMap((content) => (content.type === "content" && content.content.type === "text" ? [content.content.text] : []));
  const said = texts.filter((text) => text.replace(/^```\w*\n|\n```$/gu, "").trim() !== title.trim());
  return short(said.join(" "), 300);
}

const ICONS: Readonly<Record<Kind, string>> = { allow_once: "check", allow_always: "check-all", reject_once: "x", reject_always: "circle-slash" };
