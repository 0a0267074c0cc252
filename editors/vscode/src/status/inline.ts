import * as vscode from "vscode";
import { lineEdit } from "../core/lines.js";
import type { Marks } from "../core/marks.js";
import type { Mark } from "../core/marks.js";
import type { CallRecord, CallStatus, ToolCalls } from "../core/toolCalls.js";
import { isOver } from "../core/toolCalls.js";
import { duration, plural, short } from "../core/words.js";
import { encoded } from "../editor/notices.js";

const FRAMES = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/** Milliseconds between two frames of the spinner and of the fading. */
const TICK = 120;
const FADE = 1_500;
const TITLE_CHARS = 60;
/** Maximum number of marks drawn in one editor: the newest. */
const SHOWN = 100;

export interface InlineSettings {
  readonly enabled: boolean;
  /** Milliseconds that a result stays before it fades; its gutter mark stays until the next prompt. */
  readonly fadeAfter: number;
}

/**
 * The title of each tool call at its location in the editor, with a spinner that becomes the result and fades, and a
 * mark in the gutter. Only visible editors are drawn; a timer runs only while something in them moves.
 */
export class InlineStatus implements vscode.Disposable {
  private readonly gutter: Readonly<Record<CallStatus, vscode.TextEditorDecorationType>>;
  private readonly words = vscode.window.createTextEditorDecorationType({ rangeBehavior: vscode.DecorationRangeBehavior.ClosedOpen });
  private readonly disposables: vscode.Disposable[] = [];
  private timer: NodeJS.Timeout | undefined;
  private soon: NodeJS.Timeout | undefined;
  private readonly stale = new Set<string>();
  private frame = 0;
  /** The files with marks: their line numbers have a menu. */
  private marked: readonly string[] = [];

  constructor(
    calls: ToolCalls,
    private readonly marks: Marks,
    media: vscode.Uri,
    private readonly settings: () => InlineSettings,
    private readonly now: () => number = Date.now,
  ) {
    const icon = (name: string, colour: string): vscode.TextEditorDecorationType =>
      vscode.window.createTextEditorDecorationType({
        gutterIconPath: vscode.Uri.joinPath(media, `gutter-${name}.svg`),
        gutterIconSize: "contain",
        overviewRulerColor: new vscode.ThemeColor(colour),
        overviewRulerLane: vscode.OverviewRulerLane.Left,
      });
    this.gutter = {
      pending: icon("pending", "charts.yellow"),
      in_progress: icon("running", "charts.blue"),
      completed: icon("completed", "charts.green"),
      failed: icon("failed", "charts.red"),
      cancelled: icon("cancelled", "charts.foreground"),
    };
    this.disposables.push(
      new vscode.Disposable(
        calls.changed.on(({ record }) => {
          this.draw(this.marks.update(record));
        }),
      ),
      vscode.window.onDidChangeVisibleTextEditors(() => {
        this.draw(this.seen());
      }),
      vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
        if (document.uri.scheme === "file" && contentChanges.length > 0) {
          this.marks.edited(document.uri.fsPath, contentChanges.map(lineEdit));
        }
      }),
      this.words,
      ...Object.values(this.gutter),
    );
  }

  dispose(): void {
    clearTimeout(this.timer);
    clearTimeout(this.soon);
    vscode.Disposable.from(...this.disposables).dispose();
  }

  /** Removes the results of ended calls. */
  clear(which?: (record: CallRecord) => boolean): void {
    this.draw(this.marks.clear(which));
  }

  refresh(): void {
    this.draw(this.seen());
  }

  private seen(): Set<string> {
    return new Set(vscode.window.visibleTextEditors.map((editor) => editor.document.uri.fsPath));
  }

  /** Once for all updates of one round of the event loop: 200 simultaneous calls cost one drawing. */
  private draw(paths: ReadonlySet<string>): void {
    for (const path of paths) {
      this.stale.add(path);
    }
    if (this.stale.size > 0) {
      this.soon ??= setTimeout(() => {
        this.soon = undefined;
        this.drawNow();
      }, 30);
    }
  }

  private drawNow(): void {
    const paths = new Set(this.stale);
    this.stale.clear();
    const marked = this.settings().enabled ? this.marks.paths : [];
    if (marked.join("\n") !== this.marked.join("\n")) {
      this.marked = marked;
      vscode.commands.executeCommand("setContext", "acpCoder.marked", marked).then(undefined, () => undefined);
    }
    let moving = false;
    for (const editor of vscode.window.visibleTextEditors) {
      const { uri } = editor.document;
      if (uri.scheme !== "file") {
        continue;
      }
      const marks = this.settings().enabled ? this.marks.of(uri.fsPath).slice(-SHOWN) : [];
      if (marks.some(({ record }) => this.moves(record))) {
        moving = true;
      }
      if (paths.has(uri.fsPath)) {
        this.drawEditor(editor, marks);
      }
    }
    if (moving && this.timer === undefined) {
      this.timer = setTimeout(() => {
        this.timer = undefined;
        this.frame += 1;
        this.draw(this.seen());
      }, TICK);
    }
  }

  private moves(record: CallRecord): boolean {
    return !isOver(record.status) || this.age(record) < this.settings().fadeAfter + FADE;
  }

  private age(record: CallRecord): number {
    return record.endedAt === undefined ? 0 : this.now() - record.endedAt;
  }

  private drawEditor(editor: vscode.TextEditor, marks: readonly Mark[]): void {
    const last = editor.document.lineCount - 1;
    const byStatus = new Map<CallStatus, vscode.Range[]>();
    const words = new Map<number, { text: string[]; opacity: number; record: CallRecord }>();
    for (const { line, record } of marks) {
      const shown = Math.min(line, last);
      const ranges = byStatus.get(record.status) ?? [];
      byStatus.set(record.status, [...ranges, new vscode.Range(shown, 0, shown, 0)]);
      const opacity = this.opacity(record);
      if (opacity > 0) {
        const before = words.get(shown);
        words.set(shown, { text: [...(before?.text ?? []), this.text(record)], opacity: Math.max(before?.opacity ?? 0, opacity), record });
      }
    }
    for (const [status, type] of Object.entries(this.gutter)) {
      editor.setDecorations(type, byStatus.get(status as CallStatus) ?? []);
    }
    editor.setDecorations(
      this.words,
      [...words].map(([line, { text, opacity, record }]) => {
        const end = editor.document.lineAt(line).range.end;
        return {
          range: new vscode.Range(end, end),
          hoverMessage: hoverOf(record, editor.document.uri.fsPath),
          renderOptions: {
            after: {
              contentText: text.slice(-3).join("  ·  "),
              margin: "0 0 0 2.5em",
              color: new vscode.ThemeColor(record.status === "failed" ? "editorError.foreground" : "editorCodeLens.foreground"),
              fontStyle: "italic",
              // The only way VS Code offers to draw translucent text.
              ...(opacity < 1 ? { textDecoration: `none; opacity: ${opacity.toFixed(2)}` } : {}),
            },
          },
        };
      }),
    );
  }

  private opacity(record: CallRecord): number {
    if (!isOver(record.status)) {
      return 1;
    }
    const left = this.settings().fadeAfter + FADE - this.age(record);
    return Math.max(0, Math.min(1, left / FADE));
  }

  private text(record: CallRecord): string {
    const title = short(record.title, TITLE_CHARS);
    const time = record.endedAt === undefined ? "" : ` ${duration(record.endedAt - record.startedAt)}`;
    switch (record.status) {
      case "pending":
        return `◌ ${title}`;
      case "in_progress":
        return `${FRAMES[this.frame % FRAMES.length] ?? ""} ${title}`;
      case "completed":
        return `✓ ${title}${time}`;
      case "failed":
        return `✗ ${title}${time}`;
      case "cancelled":
        return `⊘ ${title}`;
    }
  }
}

/** Lines named in the hover of a search. */
const NAMED = 12;

/** What a call is, with what can be done: links do not move the text, as a lens does. */
function hoverOf(record: CallRecord, path: string): vscode.MarkdownString {
  const hover = new vscode.MarkdownString().appendText(record.title);
  const lines = record.locations.flatMap((location) => (location.path === path && typeof location.line === "number" ? [location.line] : []));
  if (lines.length > 1) {
    const more = lines.length > NAMED ? ", …" : "";
    hover.appendMarkdown(`\n\n${plural(lines.length, "place")} here: ${lines.slice(0, NAMED).join(", ")}${more}`);
  }
  const call = { sessionId: record.sessionId, toolCallId: record.toolCallId };
  const link = (label: string, command: string): string => `[${label}](command:acpCoder.${command}?${encoded([call])})`;
  const links = [
    link("Output", "showOutput"),
    ...(record.content.some(({ type }) => type === "diff") ? [link("Show diff", "showDiff")] : []),
    link("In the chat", "showInChat"),
    ...(isOver(record.status) ? [] : [link("Stop", "stop")]),
  ];
  if (record.status === "pending") {
    const answer = (label: string, kind: string): string => `[${label}](command:acpCoder.answerCall?${encoded([call, kind])})`;
    links.unshift(answer("Allow", "allow_once"), answer("Reject", "reject_once"));
  }
  hover.isTrusted = { enabledCommands: ["showOutput", "showDiff", "showInChat", "stop", "answerCall"].map((name) => `acpCoder.${name}`) };
  return hover.appendMarkdown(`\n\n${links.join(" · ")}`);
}
