import * as vscode from "vscode";
import type { Forms } from "../agent/forms.js";
import type { AgentHost } from "../agent/host.js";
import type { Question } from "../agent/session.js";
import type { ToolCalls } from "../core/toolCalls.js";
import { withoutIcons } from "../core/words.js";
import { callOfDiff, DIFF_SCHEME } from "./diffs.js";
import type { Diffs } from "./diffs.js";
import { notice } from "./notices.js";

interface Pause {
  readonly pause: (needed: () => boolean) => Promise<boolean>;
}

type Kind = Question["options"][number]["kind"];

const SHOW = "Show the question";
/** What a row of a picker shows in the narrowest window, and how many rows are in view with the answers. */
const ROW_CHARS = 66;
const MOST_ROWS = 8;

/**
 * Permission requests outside the chat: their diffs open in the diff editor, whose title bar has the answers; while the
 * chat is not visible, or the window has not the keyboard, a notification tells of it, also of a form. All of them lead to the same question, and the first answer counts.
 *
 * Whatever is asked about is allowed only where all of it has been in view: in the chat, in the diff editor, or in a
 * picker that shows the whole.
 */
export class Questions implements vscode.Disposable {
  private readonly seen = new Set<string>();
  private readonly notified = new Set<string>();
  /** What closes the notifications that are shown, by the question. */
  private readonly notices = new Map<string, () => void>();
  /** Calls whose diff was opened here, not by the user. */
  private readonly opened = new Set<string>();
  /** Diffs whose end has been in view, by the query of their documents. */
  private readonly read = new Set<string>();
  private readonly disposables: vscode.Disposable[];

  constructor(
    private readonly host: AgentHost,
    private readonly calls: ToolCalls,
    private readonly diffs: Diffs,
    private readonly chat: { readonly visible: boolean; showQuestion: () => Promise<void> },
    private readonly openDiffs: () => boolean,
    private readonly typing: Pause,
    private readonly forms: Forms,
  ) {
    this.disposables = [
      new vscode.Disposable(
        host.changed.on((change) => {
          if (change.kind !== "session" || change.change.facts.has("permissions")) {
            this.refresh().catch(() => undefined);
          }
        }),
      ),
      new vscode.Disposable(
        forms.changed.on(() => {
          this.notifyUnseen();
          this.context().catch(() => undefined);
        }),
      ),
      vscode.window.onDidChangeWindowState(() => {
        this.notifyUnseen();
      }),
      vscode.window.tabGroups.onDidChangeTabs(() => {
        this.context().catch(() => undefined);
      }),
      vscode.window.onDidChangeActiveTextEditor(() => {
        this.context().catch(() => undefined);
      }),
      vscode.window.onDidChangeVisibleTextEditors(() => {
        this.look().catch(() => undefined);
      }),
      vscode.window.onDidChangeTextEditorVisibleRanges(({ textEditor }) => {
        if (textEditor.document.uri.scheme === DIFF_SCHEME) {
          this.look().catch(() => undefined);
        }
      }),
    ];
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables).dispose();
  }

  get open(): readonly Question[] {
    return this.host.questions;
  }

  /** A quick pick with the agent's options, for the question of the visible diff, or the oldest. */
  async pick(): Promise<void> {
    const question = this.current();
    if (question === undefined && this.forms.now !== null) {
      await this.chat.showQuestion();
      return;
    }
    if (question === undefined) {
      await vscode.window.showInformationMessage("The agent is not asking anything right now.");
      return;
    }
    const rows = rowsOf(question);
    const isWhole = question.seen || rows !== undefined;
    const options = question.options.filter(({ kind }) => isWhole || kind.startsWith("reject"));
    const items: (vscode.QuickPickItem & { readonly option?: Question["options"][number] })[] = [
      ...(rows ?? []).map((label) => ({ label, alwaysShow: true })),
      ...(isWhole ? [] : [{ label: `$(comment) ${SHOW}` }]),
      ...options.map((option) => ({ label: `$(${ICONS[option.kind]}) ${withoutIcons(option.name)}`, option })),
    ];
    const placeHolder = isWhole ? "Answer the agent's question" : "To allow it, read it to its end in the chat";
    const chosen = await vscode.window.showQuickPick(items, { title: question.title, placeHolder, ignoreFocusOut: true });
    if (chosen?.option !== undefined) {
      this.answer(question, chosen.option.optionId);
    } else if (chosen !== undefined) {
      await this.show(question);
    }
  }

  private async show(question: Question): Promise<void> {
    this.host.look(question.sessionId);
    await this.chat.showQuestion();
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
    if (question !== undefined && option !== undefined && kind.startsWith("allow") && !question.seen) {
      await this.show(question);
      await vscode.window.showInformationMessage("Read the question to its end first: then it can be allowed.");
    } else if (question !== undefined && option !== undefined) {
      this.answer(question, option.optionId);
    } else if (isDiff && question === undefined) {
      await vscode.window.showInformationMessage("This question has already been answered.");
    } else {
      await this.pick();
    }
  }

  /** At the line of the call: with the first option of a kind, or the diff where it was not read yet. */
  async answerCall(call: unknown, kind: unknown): Promise<void> {
    const { sessionId, toolCallId } = (call ?? {}) as { sessionId?: unknown; toolCallId?: unknown };
    const question = this.open.find((one) => one.sessionId === sessionId && one.toolCallId === toolCallId);
    const option = question?.options.find((one) => one.kind === kind);
    if (question === undefined) {
      await vscode.window.showInformationMessage("This question has already been answered.");
    } else if (option === undefined) {
      await this.show(question); // It has no such answer.
    } else if (option.kind.startsWith("allow") && !question.seen) {
      const record = this.calls.get(question.sessionId, question.toolCallId);
      if (record === undefined || !(await this.diffs.openAll(record))) {
        await this.show(question);
      }
    } else {
      this.answer(question, option.optionId);
    }
  }

  /** By a link of a notification: with an option, or to show it. */
  async answerNotified(sessionId: unknown, id: unknown, optionId: unknown): Promise<void> {
    const question = this.open.find((one) => one.sessionId === sessionId && one.id === id);
    if (question === undefined) {
      await this.chat.showQuestion();
    } else if (typeof optionId === "string") {
      this.answer(question, optionId);
    } else {
      await this.show(question);
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

  /** Notes which diffs were read to their end: a question that is about diffs only may then be allowed. */
  private async look(): Promise<void> {
    const editors = vscode.window.visibleTextEditors.filter(({ document }) => document.uri.scheme === DIFF_SCHEME);
    for (const question of editors.length === 0 ? [] : this.open) {
      const record = this.calls.get(question.sessionId, question.toolCallId);
      if (record === undefined || question.seen || question.about.text !== "" || !question.hasDiff) {
        continue;
      }
      const ends = await this.diffs.ends(record);
      for (const { document, visibleRanges } of editors) {
        const end = ends.get(document.uri.query);
        if (end !== undefined && visibleRanges.some((range) => range.start.line <= end && range.end.line >= end)) {
          this.read.add(document.uri.query);
        }
      }
      if ([...ends.keys()].every((query) => this.read.has(query))) {
        this.host.session(question.sessionId)?.see(question.id);
      }
    }
  }

  private async refresh(): Promise<void> {
    const { open } = this;
    this.closeNotices();
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
        await this.look();
      }
    }
  }

  private isSeen({ sessionId }: Question): boolean {
    return vscode.window.state.focused && this.chat.visible && this.host.active?.id === sessionId;
  }

  private get isFormSeen(): boolean {
    return vscode.window.state.focused && this.chat.visible;
  }

  /** Called whenever what is seen may have changed. Each question is notified of once. */
  notifyUnseen(): void {
    for (const question of this.open) {
      const key = `${question.sessionId} ${question.id}`;
      if (!this.notified.has(key) && !this.isSeen(question)) {
        this.notified.add(key);
        this.notices.set(key, this.notify(question));
      }
    }
    const form = this.forms.now;
    const key = form === null ? "" : `form ${String(form.id)}`;
    if (form !== null && !this.notified.has(key) && !this.isFormSeen) {
      this.notified.add(key);
      this.notices.set(key, notice(`${this.host.name} asks: ${form.message}`, [{ label: "Show", command: "acpCoder.answerNotified" }]));
    }
    this.closeNotices();
  }

  /** Those whose question was answered, or is in view now. */
  private closeNotices(): void {
    const unseen = new Set(this.open.filter((question) => !this.isSeen(question)).map(({ sessionId, id }) => `${sessionId} ${id}`));
    if (this.forms.now !== null && !this.isFormSeen) {
      unseen.add(`form ${String(this.forms.now.id)}`);
    }
    for (const [key, close] of [...this.notices].filter(([one]) => !unseen.has(one))) {
      this.notices.delete(key);
      close();
    }
  }

  private notify({ title, sessionId, id, options }: Question): () => void {
    const command = "acpCoder.answerNotified";
    const reject = options.find(({ kind }) => kind === "reject_once");
    return notice(`${this.host.name} asks: ${title}`, [
      { label: "Show", command, args: [sessionId, id] },
      ...(reject === undefined ? [] : [{ label: "Reject", command, args: [sessionId, id, reject.optionId] }]),
    ]);
  }

  /** Context for the menus: whether there is a question, and whether the visible diff belongs to one. */
  private async context(): Promise<void> {
    const question = this.ofShownDiff();
    const kinds = new Set(question?.options.map(({ kind }) => kind));
    await Promise.all([
      vscode.commands.executeCommand("setContext", "acpCoder.question", this.open.length > 0 || this.forms.now !== null),
      vscode.commands.executeCommand("setContext", "acpCoder.diffQuestion", question !== undefined),
      vscode.commands.executeCommand("setContext", "acpCoder.diffAllowOnce", kinds.has("allow_once") && question?.seen === true),
      vscode.commands.executeCommand("setContext", "acpCoder.diffRejectOnce", kinds.has("reject_once")),
    ]);
  }
}

/** What is asked and why as rows of a picker; nothing if it does not fit. A title that says it all needs no row. */
function rowsOf({ title, about }: Question): string[] | undefined {
  const texts = [...(about.text === title && title.length <= ROW_CHARS && !title.includes("\n") ? [] : about.text.split("\n")), ...about.why];
  const rows = texts.flatMap((text) => text.match(new RegExp(`.{1,${String(ROW_CHARS)}}`, "gu")) ?? []);
  return about.diffs.length > 0 || !about.whole || rows.length > MOST_ROWS ? undefined : rows.map(withoutIcons);
}

const ICONS: Readonly<Record<Kind, string>> = { allow_once: "check", allow_always: "check-all", reject_once: "x", reject_always: "circle-slash" };
