import * as vscode from "vscode";
import type { AgentHost } from "../agent/host.js";
import type { Question } from "../agent/session.js";
import type { ToolCalls } from "../core/toolCalls.js";
import { withoutIcons } from "../core/words.js";

const SCHEME = "acp-plan";
/** Plans that can still be read after their question was answered. */
const KEPT = 50;

/**
 * A plan that the agent asks to carry out (a call of the kind `switch_mode` that says more than its title) as a
 * document that nobody can change, with the question's own answers above and below it.
 */
export class Plans implements vscode.TextDocumentContentProvider, vscode.CodeLensProvider, vscode.Disposable {
  private readonly emitter = new vscode.EventEmitter<void>();
  readonly onDidChangeCodeLenses = this.emitter.event;
  private readonly texts = new Map<string, string>();
  private readonly disposables: vscode.Disposable[];

  constructor(
    private readonly host: AgentHost,
    private readonly calls: ToolCalls,
    private readonly opens: () => boolean,
    private readonly typing: { readonly pause: (needed: () => boolean) => Promise<boolean> },
  ) {
    this.disposables = [
      this.emitter,
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.languages.registerCodeLensProvider({ scheme: SCHEME }, this),
      new vscode.Disposable(
        host.changed.on((change) => {
          if (change.kind !== "session" || change.change.facts.has("permissions")) {
            this.emitter.fire();
            this.refresh().catch(() => undefined);
          }
        }),
      ),
      vscode.window.onDidChangeVisibleTextEditors((editors) => {
        editors.forEach(this.look);
      }),
      vscode.window.onDidChangeTextEditorVisibleRanges(({ textEditor }) => {
        this.look(textEditor);
      }),
    ];
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables).dispose();
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.query) ?? "This plan is no longer known.\n";
  }

  provideCodeLenses(document: vscode.TextDocument): vscode.CodeLens[] {
    const question = this.questionOf(document);
    return [0, document.lineCount - 1].flatMap((line) =>
      (question?.options ?? []).map(({ optionId, name, kind }) => {
        const waits = kind.startsWith("allow") && question?.seen !== true;
        return new vscode.CodeLens(new vscode.Range(line, 0, line, 0), {
          title: `$(${kind.startsWith("allow") ? "check" : "x"})\u00a0${withoutIcons(name)}`,
          tooltip: waits ? "Read to the end first" : name,
          command: "acpCoder.answerPlan",
          arguments: [document.uri, optionId],
        });
      }),
    );
  }

  /** Answers; what allows shows the end of the plan first, where that was not in view. */
  answer(uri: vscode.Uri, optionId: string): void {
    const editor = vscode.window.visibleTextEditors.find(({ document }) => document.uri.toString() === uri.toString());
    const question = this.open.find((one) => keyOf(one) === uri.query);
    const option = question?.options.find((one) => one.optionId === optionId);
    if (question === undefined || option === undefined) {
      return;
    }
    if (option.kind.startsWith("allow") && !question.seen) {
      const end = new vscode.Position((editor?.document.lineCount ?? 1) - 1, 0);
      editor?.revealRange(new vscode.Range(end, end));
    } else {
      this.host.session(question.sessionId)?.answer(question.id, optionId);
    }
  }

  private get open(): readonly Question[] {
    return this.host.questions;
  }

  private questionOf({ uri }: vscode.TextDocument): Question | undefined {
    return uri.scheme === SCHEME ? this.open.find((question) => keyOf(question) === uri.query) : undefined;
  }

  private async refresh(): Promise<void> {
    for (const question of this.open) {
      const { sessionId, toolCallId, title, about } = question;
      const isPlan = this.calls.get(sessionId, toolCallId)?.kind === "switch_mode" && about.text !== title && about.whole && about.diffs.length === 0;
      const key = keyOf(question);
      if (isPlan && !this.texts.has(key)) {
        this.texts.set(key, `${[about.text, ...about.why].join("\n\n")}\n`);
        for (const old of [...this.texts.keys()].slice(0, Math.max(0, this.texts.size - KEPT))) {
          this.texts.delete(old);
        }
        await this.present(key);
      }
    }
  }

  private async present(key: string): Promise<void> {
    const isOpen = (): boolean => this.open.some((question) => keyOf(question) === key);
    if (this.opens() && (await this.typing.pause(isOpen))) {
      const document = await vscode.workspace.openTextDocument(vscode.Uri.from({ scheme: SCHEME, path: "/Plan.md", query: key }));
      this.look(await vscode.window.showTextDocument(document, { preview: true, preserveFocus: true }));
    }
  }

  /** The end of a plan was in view: it may be allowed. */
  private readonly look = ({ document, visibleRanges }: vscode.TextEditor): void => {
    const question = this.questionOf(document);
    if (question !== undefined && visibleRanges.some(({ end }) => end.line >= document.lineCount - 1)) {
      this.host.session(question.sessionId)?.see(question.id);
    }
  };
}

function keyOf({ sessionId, id }: Question): string {
  return JSON.stringify([sessionId, id]);
}
