import * as vscode from "vscode";
import { Later } from "../core/later.js";
import { lineEdit } from "../core/lines.js";
import type { Mark, Marks } from "../core/marks.js";
import { HeldLines } from "../core/heldLines.js";
import type { CallRecord, ToolCalls } from "../core/toolCalls.js";
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
  /** For a call that is announced: its lens is there before it starts. */
  private readonly placing = new Later(0, () => {
    this.emitter.fire();
  });
  private readonly held = new Map<string, HeldLines<CallRecord>>();

  constructor(
    calls: ToolCalls,
    private readonly marks: Marks,
    private readonly enabled: () => boolean,
  ) {
    this.disposables.push(
      new vscode.Disposable(
        calls.changed.on(({ record, before }) => {
          if (record.locations.length > 0 && before === undefined) {
            this.placing.soon();
          } else if (record.locations.length > 0 && (before?.status !== record.status || before.title !== record.title || before.locations !== record.locations || before.content !== record.content)) {
            this.refresh();
          }
        }),
      ),
      vscode.languages.registerCodeLensProvider({ scheme: "file" }, this),
      vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
        this.held.get(document.uri.fsPath)?.edited(contentChanges.map(lineEdit));
      }),
      vscode.workspace.onDidCloseTextDocument(({ uri }) => {
        this.held.delete(uri.fsPath);
      }),
      vscode.window.onDidChangeTextEditorSelection(this.moved),
      vscode.window.onDidChangeTextEditorVisibleRanges(this.moved),
      vscode.window.onDidChangeActiveTextEditor(this.moved),
      vscode.window.onDidChangeWindowState(this.moved),
    );
  }

  dispose(): void {
    this.drawing.dispose();
    this.placing.dispose();
    vscode.Disposable.from(...this.disposables).dispose();
  }

  /** The user is elsewhere: what waited for that may come or go. */
  private readonly moved = (): void => {
    if ([...this.held.values()].some(({ waits }) => waits)) {
      this.refresh();
    }
  };

  refresh(): void {
    this.drawing.soon();
  }

  provideCodeLenses(document: vscode.TextDocument): vscode.CodeLens[] {
    if (!this.enabled()) {
      this.held.clear();
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
    const held = this.held.get(document.uri.fsPath) ?? new HeldLines();
    this.held.set(document.uri.fsPath, held);
    const wanted = new Map([...newest].map(([line, { record }]) => [line, record]));
    return held.settle(wanted, (line) => mayMove(document, line)).flatMap(({ line, what }) => lensesOf(line, what));
  }
}

const ICONS = { pending: "circle-large-outline", in_progress: "loading~spin", completed: "pass", failed: "error", cancelled: "circle-slash" } as const;

/** Whether room above a line moves nothing that the user works at: the text from there to the cursor would move. */
function mayMove(document: vscode.TextDocument, line: number): boolean {
  const editor = vscode.window.activeTextEditor;
  if (editor?.document !== document || !vscode.window.state.focused) {
    return true;
  }
  // What is above the view moves nothing: VS Code scrolls along.
  const top = editor.visibleRanges[0]?.start.line ?? 0;
  const { active } = editor.selection;
  // Where a file opens, nobody has put the cursor.
  const isUnplaced = active.line === 0 && active.character === 0;
  return line < top || line > active.line || isUnplaced;
}

function lensesOf(line: number, record: CallRecord): vscode.CodeLens[] {
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
