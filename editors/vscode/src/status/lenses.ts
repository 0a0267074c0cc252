import * as vscode from "vscode";
import { Later } from "../core/later.js";
import type { Mark, Marks } from "../core/marks.js";
import type { ToolCalls } from "../core/toolCalls.js";
import { isOver } from "../core/toolCalls.js";
import { short, withoutIcons } from "../core/words.js";

const REFRESH = 150;
/** Maximum number of marks of a file with lenses: the newest, as in the text itself. */
const SHOWN = 100;

/** Above each location of a call: what it is, and what can be done with it. */
export class CallLenses implements vscode.CodeLensProvider, vscode.Disposable {
  private readonly emitter = new vscode.EventEmitter<void>();
  readonly onDidChangeCodeLenses = this.emitter.event;
  private readonly disposables: vscode.Disposable[] = [this.emitter];
  private readonly drawing = new Later(REFRESH, () => {
    this.emitter.fire();
  });

  constructor(
    calls: ToolCalls,
    private readonly marks: Marks,
    private readonly enabled: () => boolean,
  ) {
    this.disposables.push(
      new vscode.Disposable(
        calls.changed.on(({ record, before }) => {
          if (record.locations.length > 0 && (before?.status !== record.status || before.title !== record.title || before.locations !== record.locations || before.content !== record.content)) {
            this.refresh();
          }
        }),
      ),
      vscode.languages.registerCodeLensProvider({ scheme: "file" }, this),
    );
  }

  dispose(): void {
    this.drawing.dispose();
    vscode.Disposable.from(...this.disposables).dispose();
  }

  refresh(): void {
    this.drawing.soon();
  }

  provideCodeLenses(document: vscode.TextDocument): vscode.CodeLens[] {
    if (!this.enabled()) {
      return [];
    }
    const newest = new Map<number, Mark>();
    for (const mark of this.marks.of(document.uri.fsPath).slice(-SHOWN)) {
      const line = Math.min(mark.line, document.lineCount - 1);
      const before = newest.get(line);
      // Running calls come before ended ones; of two of a kind the later one counts.
      if (before === undefined || isOver(before.record.status) || !isOver(mark.record.status)) {
        newest.set(line, mark);
      }
    }
    return [...newest].flatMap(([line, mark]) => lensesOf(line, mark));
  }
}

const ICONS = { pending: "circle-large-outline", in_progress: "loading~spin", completed: "pass", failed: "error", cancelled: "circle-slash" } as const;

function lensesOf(line: number, { record }: Mark): vscode.CodeLens[] {
  const range = new vscode.Range(line, 0, line, 0);
  const call = { sessionId: record.sessionId, toolCallId: record.toolCallId };
  const lens = (title: string, command: string, tooltip: string): vscode.CodeLens =>
    new vscode.CodeLens(range, { title, command, tooltip, arguments: [call] });
  const lenses = [lens(`$(${ICONS[record.status]})\u00a0${withoutIcons(short(record.title, 70))}`, "acpCoder.showOutput", "Show the output of this tool call")];
  if (record.content.some((content) => content.type === "diff")) {
    lenses.push(lens("Show diff", "acpCoder.showDiff", "Show what this tool call changes"));
  }
  if (!isOver(record.status)) {
    lenses.push(lens("Stop", "acpCoder.stop", "Stop the turn this tool call belongs to"));
  }
  return lenses;
}
