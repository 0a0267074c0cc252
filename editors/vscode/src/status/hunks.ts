import * as vscode from "vscode";
import type { Undo } from "../agent/undo.js";
import { Later } from "../core/later.js";
import { lineAfter } from "../core/lines.js";
import { stepFrom } from "../core/steps.js";
import { linesOfHunk } from "../core/undo.js";
import type { UndoChange, UndoHunk } from "../core/undoMethods.js";
import { encoded } from "../editor/notices.js";
import type { ChangeRow } from "./changes.js";

const REFRESH = 50;
/** Removed lines shown in a hover. */
const SHOWN = 30;

/** A changed place of a file; its lines move with the text. */
interface Place {
  readonly change: UndoChange;
  readonly hunk: UndoHunk;
  /** From 0; `end` is behind the last line. */
  start: number;
  end: number;
}

/**
 * What the last prompt changed, tinted in its file until it is kept, with `Keep · Undo · Show diff` in the hover: nothing
 * moves the text.
 */
export class Hunks implements vscode.Disposable {
  private readonly places = new Map<string, Place[]>();
  private tints = tints();
  private readonly drawing = new Later(REFRESH, () => {
    this.draw();
  });
  private readonly disposables: vscode.Disposable[];
  private told = false;

  constructor(private readonly undo: Undo) {
    this.disposables = [
      new vscode.Disposable(
        undo.changed.on(() => {
          this.read();
        }),
      ),
      vscode.window.onDidChangeVisibleTextEditors(this.drawing.soon),
      vscode.window.onDidChangeActiveColorTheme(() => {
        this.withoutTints();
        this.tints = tints();
        this.drawing.soon();
      }),
      vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
        for (const { range, text } of contentChanges) {
          const edit = { startLine: range.start.line, endLine: range.end.line, newBreaks: text.split("\n").length - 1, atLineStart: range.start.character === 0 };
          for (const place of this.of(document.uri)) {
            place.start = lineAfter(place.start, edit);
            place.end = Math.max(place.start, lineAfter(place.end, edit));
          }
        }
        if (contentChanges.length > 0 && !document.isDirty && this.of(document.uri).length > 0) {
          undo.soon(); // Another program has written the file: the agent knows what is left.
        }
      }),
      vscode.workspace.onDidSaveTextDocument(({ uri }) => {
        if (this.of(uri).length > 0) {
          undo.soon(); // What is left of a change that the user has edited.
        }
      }),
    ];
  }

  dispose(): void {
    this.drawing.dispose();
    this.withoutTints();
    vscode.Disposable.from(...this.disposables).dispose();
  }

  private withoutTints(): void {
    this.tints.added.dispose();
    this.tints.removed.dispose();
  }

  private of({ scheme, fsPath }: vscode.Uri): Place[] {
    return scheme === "file" ? (this.places.get(fsPath) ?? []) : [];
  }

  private read(): void {
    const dirty = new Set(vscode.workspace.textDocuments.filter(({ isDirty }) => isDirty).map(({ uri }) => uri.fsPath));
    const before = new Map(this.places);
    this.places.clear();
    for (const change of this.undo.left) {
      const known = before.get(change.path);
      const hunks = this.undo.keeps.left(change).hunks;
      // The agent knows the file as it is on the disk, and as it was when it was asked: since then the places have moved.
      const moved = known !== undefined && (dirty.has(change.path) || known[0]?.change === change);
      const places = hunks.map((hunk) => ({ change, hunk, start: Math.max(0, hunk.newStart - 1), end: Math.max(0, hunk.newStart - 1) + hunk.newLines }));
      this.places.set(change.path, moved ? known.filter(({ hunk }) => hunks.some(({ id }) => id === hunk.id)) : places);
    }
    this.drawing.soon();
    const any = this.undo.left.length > 0;
    if (any !== this.told) {
      this.told = any;
      vscode.commands.executeCommand("setContext", "acpCoder.hasChanges", any).then(undefined, () => undefined);
    }
  }

  private draw(): void {
    for (const editor of vscode.window.visibleTextEditors) {
      const last = editor.document.lineCount - 1;
      const ranges = (some: readonly Place[]): vscode.DecorationOptions[] =>
        some.map((place) => ({ range: new vscode.Range(Math.min(place.start, last), 0, Math.min(Math.max(place.start, place.end - 1), last), 0), hoverMessage: hoverOf(place) }));
      const places = this.of(editor.document.uri);
      editor.setDecorations(this.tints.added, ranges(places.filter(({ hunk }) => hunk.newLines > 0)));
      editor.setDecorations(this.tints.removed, ranges(places.filter(({ hunk }) => hunk.newLines === 0)));
    }
  }

  /** The row of the Changes view for a hunk: the one that is named, else the one at the cursor. */
  row(path: unknown, id: unknown): ChangeRow | undefined {
    const editor = vscode.window.activeTextEditor;
    const found =
      typeof path === "string"
        ? this.places.get(path)?.find(({ hunk }) => hunk.id === id)
        : editor && this.of(editor.document.uri).find(({ start, end }) => start <= editor.selection.active.line && editor.selection.active.line < Math.max(end, start + 1));
    return found && { type: "hunk", part: "turn", change: found.change, hunk: found.hunk };
  }

  /** To the next or previous change, also in another file. */
  async step(by: 1 | -1): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    const here = { path: editor?.document.uri.fsPath ?? "", line: editor?.selection.active.line ?? 0 };
    // A file that was deleted cannot be shown.
    const there = [...this.places].filter(([, places]) => places.every(({ change }) => change.kind !== "deleted"));
    const target = stepFrom(new Map(there.map(([path, places]) => [path, places.map(({ start }) => start)])), here, by);
    if (target === undefined) {
      return;
    }
    const place = new vscode.Range(target.line, 0, target.line, 0);
    const shown = await vscode.window.showTextDocument(vscode.Uri.file(target.path), { selection: place });
    shown.revealRange(place, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
  }
}

interface Tints {
  readonly added: vscode.TextEditorDecorationType;
  readonly removed: vscode.TextEditorDecorationType;
}

/** A theme of high contrast has no colours behind lines: a bar stands before them. */
function tints(): Tints {
  const { HighContrast, HighContrastLight } = vscode.ColorThemeKind;
  const isHigh = [HighContrast, HighContrastLight].includes(vscode.window.activeColorTheme.kind);
  const tint = (name: "inserted" | "removed", ruler: string): vscode.TextEditorDecorationType =>
    vscode.window.createTextEditorDecorationType({
      isWholeLine: true,
      backgroundColor: new vscode.ThemeColor(`diffEditor.${name}LineBackground`),
      ...(isHigh ? { borderStyle: "solid", borderWidth: "0 0 0 3px", borderColor: new vscode.ThemeColor(`diffEditor.${name}TextBorder`) } : {}),
      overviewRulerColor: new vscode.ThemeColor(`editorOverviewRuler.${ruler}Foreground`),
      overviewRulerLane: vscode.OverviewRulerLane.Right,
    });
  return { added: tint("inserted", "added"), removed: tint("removed", "deleted") };
}

function hoverOf({ change, hunk }: Place): vscode.MarkdownString {
  const hover = new vscode.MarkdownString();
  const link = (label: string, command: string): string => `[${label}](command:acpCoder.${command}?${encoded([change.path, hunk.id])})`;
  hover.isTrusted = { enabledCommands: ["acpCoder.keepHunk", "acpCoder.undoHunk", "acpCoder.showHunk"] };
  hover.appendMarkdown([link("Keep", "keepHunk"), link("Undo", "undoHunk"), link("Show diff", "showHunk")].join(" · "));
  const { removed } = linesOfHunk(change, hunk);
  if (removed.length > 0) {
    hover.appendCodeblock(removed.slice(0, SHOWN).map((line) => `-${line.trimEnd()}`).join("\n"), "diff");
  }
  return hover;
}
