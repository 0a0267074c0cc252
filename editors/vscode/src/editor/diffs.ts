import type { Diff } from "@agentclientprotocol/sdk";
import { createHash } from "node:crypto";
import * as vscode from "vscode";
import { lastChange } from "../core/lines.js";
import { wholeFile } from "../core/wholeFile.js";
import type { CallRecord, ToolCalls } from "../core/toolCalls.js";
import { isOver } from "../core/toolCalls.js";
import { labelOfUri } from "../core/uris.js";

export const DIFF_SCHEME = "acp-diff";

/** Diffs whose context is kept; an older one is shown as the agent sent it. */
const KEPT = 500;

interface Sides {
  readonly before: string;
  readonly after: string;
}

/**
 * Changes that tool calls propose or have made, in VS Code's own diff editor. A diff shows what the agent sent,
 * kept from when it was first seen: it can be reviewed after the file has changed again.
 */
export class Diffs implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly sides = new Map<string, Sides>();
  private readonly disposables: vscode.Disposable[];

  constructor(calls: ToolCalls) {
    this.disposables = [
      vscode.workspace.registerTextDocumentContentProvider(DIFF_SCHEME, this),
      new vscode.Disposable(
        calls.changed.on(({ record, before }) => {
          // The file is still unchanged while the call waits: the moment to show a fragment in its place.
          if (!isOver(record.status) && !record.replayed && record.content !== before?.content) {
            this.capture(record).catch(() => undefined);
          }
        }),
      ),
    ];
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables).dispose();
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    const { key, side } = JSON.parse(uri.query) as { key: string; side: keyof Sides };
    return this.sides.get(key)?.[side] ?? "";
  }

  /** Opens one change of a call; false if there is none with this index. */
  async open(record: CallRecord, index: number, preserveFocus = false): Promise<boolean> {
    const content = record.content[index];
    if (content?.type !== "diff") {
      return false;
    }
    const { left, right } = await this.uris(record, index, content);
    await vscode.commands.executeCommand("vscode.diff", left, right, titleOf(record, content.path), { preview: true, preserveFocus });
    return true;
  }

  /** Opens all changes of a call: one in the diff editor, several in the multi-diff editor. */
  async openAll(record: CallRecord, preserveFocus = false): Promise<boolean> {
    const indices = record.content.flatMap((content, index) => (content.type === "diff" ? [index] : []));
    const [first] = indices;
    if (first === undefined) {
      return false;
    }
    if (indices.length === 1) {
      return await this.open(record, first, preserveFocus);
    }
    const resources = [];
    for (const index of indices) {
      const content = record.content[index];
      if (content?.type === "diff") {
        const { left, right } = await this.uris(record, index, content);
        resources.push([vscode.Uri.file(content.path), left, right]);
      }
    }
    await vscode.commands.executeCommand("vscode.changes", titleOf(record, `${String(indices.length)} files`), resources);
    return true;
  }

  /** The diffs of a call, and the last changed line of each (from 0), by the query of its documents. */
  async ends(record: CallRecord): Promise<ReadonlyMap<string, number>> {
    const ends = new Map<string, number>();
    for (const [index, content] of record.content.entries()) {
      if (content.type === "diff") {
        const { right } = await this.uris(record, index, content);
        const sides = this.sides.get(keyOf(record, index, content));
        ends.set(right.query, lastChange(sides?.before ?? "", sides?.after ?? ""));
      }
    }
    return ends;
  }

  private async uris(record: CallRecord, index: number, diff: Diff): Promise<{ left: vscode.Uri; right: vscode.Uri }> {
    const key = keyOf(record, index, diff);
    if (!this.sides.has(key)) {
      await this.capture(record);
    }
    const uri = (side: keyof Sides): vscode.Uri =>
      vscode.Uri.from({
        scheme: DIFF_SCHEME,
        path: vscode.Uri.file(diff.path).path,
        query: JSON.stringify({ key, side, sessionId: record.sessionId, toolCallId: record.toolCallId }),
      });
    return { left: uri("before"), right: uri("after") };
  }

  private forgetOld(): void {
    for (const key of [...this.sides.keys()].slice(0, Math.max(0, this.sides.size - KEPT))) {
      this.sides.delete(key);
    }
  }

  private async capture(record: CallRecord): Promise<void> {
    for (const [index, content] of record.content.entries()) {
      if (content.type === "diff") {
        const key = keyOf(record, index, content);
        if (!this.sides.has(key)) {
          const before = content.oldText ?? "";
          // Stored immediately: the answer to a question may come before the file was read.
          this.sides.set(key, { before, after: content.newText });
          const current = before === "" ? undefined : await currentText(content.path);
          this.sides.set(key, wholeFile(before, content.newText, current, isOver(record.status)));
          this.forgetOld();
        }
      }
    }
  }
}

/** The call that a diff editor's document belongs to. */
export function callOfDiff(uri: vscode.Uri): { sessionId: string; toolCallId: string } | undefined {
  if (uri.scheme !== DIFF_SCHEME) {
    return undefined;
  }
  return JSON.parse(uri.query) as { sessionId: string; toolCallId: string };
}

function titleOf(record: CallRecord, path: string): string {
  const state = isOver(record.status) ? (record.status === "completed" ? "changed" : record.status) : "proposed";
  return `${labelOfUri(path)} (${state})`;
}

function keyOf(record: CallRecord, index: number, diff: Diff): string {
  return [record.sessionId, record.toolCallId, String(index), diff.path, hashOf(diff)].join(" ");
}

function hashOf({ oldText, newText }: Diff): string {
  const hash = createHash("sha256");
  hash.update(oldText === undefined || oldText === null ? "new" : `${String(oldText.length)} ${oldText}`);
  return hash.update(newText).digest("base64url");
}

async function currentText(path: string): Promise<string | undefined> {
  const open = vscode.workspace.textDocuments.find((document) => document.uri.scheme === "file" && document.uri.fsPath === path);
  if (open !== undefined) {
    return open.getText();
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await vscode.workspace.fs.readFile(vscode.Uri.file(path)));
  } catch {
    return undefined;
  }
}
