import { createHash } from "node:crypto";
import * as vscode from "vscode";
import type { UndoChange } from "../core/undoMethods.js";
import { labelOfUri } from "../core/uris.js";

const SCHEME = "acp-undo";
/** Texts that are kept; of an older preview only the title is left. */
const KEPT = 1_000;

/** Changes of several files side by side, as texts that do not move: what was, what is, what would be. */
export class Previews implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly texts = new Map<string, string>();
  private readonly registered = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);

  dispose(): void {
    this.registered.dispose();
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.query) ?? "";
  }

  /** In the diff editor, at a line: the file itself on the right, where it has the text that the change left. */
  async one(change: UndoChange, title: string, line?: number): Promise<void> {
    const file = vscode.Uri.file(change.path);
    const right = (await textOf(file)) === change.newText ? file : this.uri(change, "newText");
    await vscode.commands.executeCommand("vscode.diff", this.uri(change, "oldText"), right, `${labelOfUri(change.path)} (${title})`, at(line));
  }

  /** In the multi-file diff editor. */
  async all(changes: readonly UndoChange[], title: string): Promise<void> {
    const side = (change: UndoChange, name: "oldText" | "newText"): vscode.Uri | undefined => (change[name] === null ? undefined : this.uri(change, name));
    const resources = changes.map((change) => [vscode.Uri.file(change.path), side(change, "oldText"), side(change, "newText")]);
    await vscode.commands.executeCommand("vscode.changes", title, resources);
  }

  /** Closes what `all` has opened. */
  async close(title: string): Promise<void> {
    const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs).filter(({ label }) => label.startsWith(title));
    await vscode.window.tabGroups.close(tabs, true);
  }

  private uri(change: UndoChange, side: "oldText" | "newText"): vscode.Uri {
    const said = change[side] ?? "";
    const text = change.shown ? said : `${side === "oldText" ? "Before" : "After"}: ${change.words || "no text, or too long to be shown"}\n`;
    const query = createHash("sha256").update(text).digest("base64url");
    this.texts.delete(query);
    this.texts.set(query, text);
    for (const old of [...this.texts.keys()].slice(0, Math.max(0, this.texts.size - KEPT))) {
      this.texts.delete(old);
    }
    return vscode.Uri.from({ scheme: SCHEME, path: vscode.Uri.file(change.path).path, query });
  }
}

/** `line` is counted from 1. */
function at(line: number | undefined): vscode.TextDocumentShowOptions {
  const place = new vscode.Position(Math.max(0, (line ?? 1) - 1), 0);
  return line === undefined ? {} : { selection: new vscode.Range(place, place) };
}

async function textOf(file: vscode.Uri): Promise<string | undefined> {
  try {
    return (await vscode.workspace.openTextDocument(file)).getText();
  } catch {
    return undefined; // There is no file, or it is no text.
  }
}
