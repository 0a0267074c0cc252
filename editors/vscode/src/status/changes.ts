import { basename, dirname } from "node:path";
import * as vscode from "vscode";
import type { AgentHost } from "../agent/host.js";
import type { Undo } from "../agent/undo.js";
import type { ChangesResponse, UndoChange, UndoHunk } from "../core/undoMethods.js";
import { cacheFiles, figures, linesOfHunk, sum } from "../core/undo.js";
import { short, visible } from "../core/words.js";
import type { Previews } from "../editor/previews.js";
import type { Restoring } from "../editor/restoring.js";

type Part = "turn" | "session";

/** What a row stands for; menus pass it to the commands. */
export type ChangeRow =
  | { readonly type: "part"; readonly part: Part }
  | { readonly type: "file"; readonly part: Part; readonly change: UndoChange }
  | { readonly type: "hunk"; readonly part: Part; readonly change: UndoChange; readonly hunk: UndoHunk }
  /** Those that programs make again. */
  | { readonly type: "caches"; readonly part: Part }
  | { readonly type: "note"; readonly part: Part; readonly text: string };

const TOOLTIP_LINES = 40;

/** What the agent changed with the last prompt and in the session, and what it could not watch. */
export class ChangesTree implements vscode.TreeDataProvider<ChangeRow>, vscode.Disposable {
  private readonly emitter = new vscode.EventEmitter<undefined>();
  readonly onDidChangeTreeData = this.emitter.event;
  private readonly view: vscode.TreeView<ChangeRow>;
  private readonly disposables: vscode.Disposable[];

  constructor(
    private readonly host: AgentHost,
    private readonly undo: Undo,
    private readonly previews: Previews,
    private readonly restoring: Restoring,
  ) {
    this.view = vscode.window.createTreeView("acpCoder.changes", { treeDataProvider: this, showCollapseAll: true });
    this.disposables = [
      this.emitter,
      this.view,
      this.view.onDidChangeVisibility(({ visible: shown }) => {
        undo.watched = shown;
        undo.soon();
      }),
      new vscode.Disposable(
        undo.changed.on(() => {
          this.refresh();
        }),
      ),
    ];
    undo.watched = this.view.visible;
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables).dispose();
  }

  private refresh(): void {
    const able = this.host.running === undefined || this.undo.available;
    this.view.message = able ? "" : `${this.host.name} does not tell what it changed.`;
    this.emitter.fire(undefined);
  }

  // --- rows -------------------------------------------------------------------------------------------------------

  getChildren(node?: ChangeRow): ChangeRow[] {
    if (node === undefined) {
      const { turn, session } = this.undo.now;
      const parts: readonly Part[] = session === turn ? ["turn"] : ["turn", "session"];
      return parts.filter((part) => this.files(part).length + this.changes(part).notCovered.length > 0).map((part) => ({ type: "part", part }));
    }
    if (node.type === "part") {
      const { part } = node;
      const caches = this.files(part).some(({ cache }) => cache);
      return [
        ...this.files(part).filter(({ cache }) => !cache).map((change): ChangeRow => ({ type: "file", part, change })),
        ...(caches ? [{ type: "caches", part } as const] : []),
        ...this.changes(part).notCovered.map((text): ChangeRow => ({ type: "note", part, text })),
      ];
    }
    if (node.type === "caches") {
      const { part } = node;
      return this.files(part).filter(({ cache }) => cache).map((change) => ({ type: "file", part, change }));
    }
    if (node.type === "file") {
      return this.undo.keeps.left(node.change).hunks.map((hunk) => ({ ...node, type: "hunk", hunk }));
    }
    return [];
  }

  private changes(part: Part): ChangesResponse {
    return this.undo.now[part];
  }

  private files(part: Part): readonly UndoChange[] {
    return this.changes(part).changes.filter((change) => this.undo.keeps.left(change).any);
  }

  getTreeItem(node: ChangeRow): vscode.TreeItem {
    switch (node.type) {
      case "part":
        return this.partItem(node.part);
      case "caches":
        return cachesItem(node.part, this.files(node.part).filter(({ cache }) => cache).length);
      case "file":
        return fileItem(node);
      case "hunk":
        return hunkItem(node);
      case "note": {
        const item = new vscode.TreeItem(short(node.text, 200));
        item.description = "not covered";
        item.tooltip = node.text;
        item.iconPath = new vscode.ThemeIcon("warning");
        item.id = JSON.stringify([node.part, node.text]);
        return item;
      }
    }
  }

  private partItem(part: Part): vscode.TreeItem {
    const { last, session, turn } = this.undo.now;
    const isTurn = part === "turn";
    const item = new vscode.TreeItem(isTurn ? "Last prompt" : "Session", isTurn || session === turn ? vscode.TreeItemCollapsibleState.Expanded : vscode.TreeItemCollapsibleState.Collapsed);
    item.id = part;
    item.description = sum(this.files(part));
    item.tooltip = isTurn ? last?.title : this.host.active?.title;
    item.contextValue = "part";
    return item;
  }

  // --- commands ---------------------------------------------------------------------------------------------------

  async open(row: unknown): Promise<void> {
    const node = row as ChangeRow;
    if (node.type === "part") {
      const files = this.files(node.part);
      const counted = files.filter(({ cache }) => !cache);
      await this.previews.all(counted.length > 0 ? counted : files, node.part === "turn" ? "Changes of the last prompt" : "Changes of the session");
    } else if (node.type === "file" || node.type === "hunk") {
      await this.previews.one(node.change, "changed", node.type === "hunk" ? node.hunk.newStart : undefined);
    }
  }

  /** From the bar above the chat's input box: what the last prompt changed, or one file of it. */
  async act(act: string, path?: string): Promise<void> {
    const change = this.files("turn").find((each) => each.path === path);
    if (path !== undefined && change === undefined) {
      return; // It was kept or taken back a moment ago.
    }
    const row: ChangeRow = change === undefined ? { type: "part", part: "turn" } : { type: "file", part: "turn", change };
    if (act === "keep") {
      this.keep(row);
    } else if (act === "review") {
      await this.open(row);
    } else if (change !== undefined) {
      await this.revert(row);
    } else {
      await this.restoring.takeBack();
    }
  }

  keep(row: unknown): void {
    const node = row as ChangeRow;
    const { keeps } = this.undo;
    if (node.type === "part") {
      for (const change of this.files(node.part)) {
        keeps.keep(change);
      }
    } else if (node.type === "file" || node.type === "hunk") {
      keeps.keep(node.change, node.type === "hunk" ? node.hunk : undefined);
    }
    this.undo.changed.fire();
  }

  async revert(row: unknown): Promise<void> {
    const node = row as ChangeRow;
    if (node.type === "file" || node.type === "hunk") {
      const { last, checkpoints } = this.undo.now;
      const since = (node.part === "turn" ? last : checkpoints.checkpoints[0])?.prompt ?? 1;
      await this.restoring.revert(node.change, since, node.type === "hunk" ? node.hunk : undefined);
    }
  }
}

function cachesItem(part: Part, count: number): vscode.TreeItem {
  const item = new vscode.TreeItem(cacheFiles(count), vscode.TreeItemCollapsibleState.Collapsed);
  item.id = JSON.stringify([part, "caches"]);
  item.tooltip = "Programs make them again. They are not counted; what takes a prompt back takes them back, too.";
  item.iconPath = new vscode.ThemeIcon("archive");
  return item;
}

function fileItem(node: ChangeRow & { type: "file" }): vscode.TreeItem {
  const { part, change } = node;
  const state = change.hunks.length > 0 ? vscode.TreeItemCollapsibleState.Collapsed : vscode.TreeItemCollapsibleState.None;
  const item = new vscode.TreeItem(visible(basename(change.path)), state);
  const kind = change.kind === "changed" ? "" : change.kind;
  const folder = dirname(vscode.workspace.asRelativePath(change.path));
  item.id = JSON.stringify([part, change.path]);
  item.resourceUri = vscode.Uri.file(change.path);
  item.iconPath = vscode.ThemeIcon.File;
  item.description = [figures(change), kind, change.words, folder === "." ? "" : folder].filter((text) => text !== "").join(" ");
  item.tooltip = [change.path, change.words, change.mixed ? "It also has changes that are not the agent's." : ""].filter((text) => text !== "").join("\n");
  item.accessibilityInformation = { label: `${change.path}, ${change.kind}, ${String(change.added)} lines added, ${String(change.removed)} removed` };
  item.contextValue = "file";
  item.command = { title: "Open", command: "acpCoder.openChange", arguments: [node] };
  return item;
}

function hunkItem(node: ChangeRow & { type: "hunk" }): vscode.TreeItem {
  const { part, change, hunk } = node;
  const { removed, added } = linesOfHunk(change, hunk);
  const last = hunk.newStart + hunk.newLines - 1;
  const item = new vscode.TreeItem(last > hunk.newStart ? `Lines ${String(hunk.newStart)}–${String(last)}` : `Line ${String(hunk.newStart)}`);
  const lines = [...removed.map((line) => `-${line}`), ...added.map((line) => `+${line}`)].map((line) => visible(line.replace(/\r?\n$/u, "")));
  item.id = JSON.stringify([part, change.path, hunk]);
  item.description = [figures({ added: hunk.newLines, removed: hunk.oldLines }), short(lines.find((line) => line.startsWith("+")) ?? lines[0] ?? "", 60).slice(1).trim()].join(" ");
  item.tooltip = [...lines.slice(0, TOOLTIP_LINES), ...(lines.length > TOOLTIP_LINES ? [`… ${String(lines.length - TOOLTIP_LINES)} more`] : [])].join("\n");
  item.iconPath = new vscode.ThemeIcon("diff");
  item.contextValue = "hunk";
  item.command = { title: "Open", command: "acpCoder.openChange", arguments: [node] };
  return item;
}
