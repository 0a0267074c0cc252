import type * as acp from "@agentclientprotocol/sdk";
import * as vscode from "vscode";
import { realpath } from "node:fs/promises";
import { INVALID_PARAMS, RequestFailure, RESOURCE_NOT_FOUND } from "../agent/link.js";
import { smallestChange } from "../core/lines.js";
import { messageOf } from "../core/words.js";

/** Milliseconds within which a document should notice that its file was written. */
const CATCH_UP = 1_000;

/**
 * `fs/*` through VS Code's text documents: reads return what the user sees, saved or not; writes are edits that
 * they can undo. A document without unsaved changes is saved; one with the user's changes stays unsaved.
 */
export class Files {
  /** Writes to one file are made one after the other. */
  private readonly writes = new Map<string, Promise<unknown>>();

  async read({ path, line, limit }: acp.ReadTextFileRequest): Promise<acp.ReadTextFileResponse> {
    const uri = uriOf(path);
    await needSavedNotebook(uri);
    const document = await openDocument(uri);
    // A document without changes may lag behind the disk: a command of the agent may just have written the file.
    const text = document?.isDirty === true ? document.getText() : await fromDisk(uri);
    return { content: part(text, line ?? undefined, limit ?? undefined) };
  }

  async write({ path, content }: acp.WriteTextFileRequest): Promise<acp.WriteTextFileResponse> {
    const uri = uriOf(path);
    const key = uri.toString();
    const before = this.writes.get(key) ?? Promise.resolve();
    const mine = before.catch(() => undefined).then(() => put(uri, content));
    this.writes.set(key, mine);
    try {
      await mine;
    } finally {
      if (this.writes.get(key) === mine) {
        this.writes.delete(key);
      }
    }
    return {};
  }
}

/** Lines `line` (1-based) to `line + limit - 1`, with their line breaks. */
export function part(text: string, line: number | undefined, limit: number | undefined): string {
  if (line === undefined && limit === undefined) {
    return text;
  }
  const lines = text.match(/[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$/gu) ?? [];
  const start = Math.max(0, (line ?? 1) - 1);
  return lines.slice(start, limit === undefined ? undefined : start + Math.max(0, limit)).join("");
}

function uriOf(path: string): vscode.Uri {
  if (!/^(?:[/\\]|[A-Za-z]:[/\\])/u.test(path)) {
    throw new RequestFailure(INVALID_PARAMS, `the path must be absolute: ${path}`);
  }
  return vscode.Uri.file(path);
}

/** The document that is open for the file, also under another name (a symbolic link). */
async function openDocument(uri: vscode.Uri): Promise<vscode.TextDocument | undefined> {
  const open = vscode.workspace.textDocuments.filter((document) => document.uri.scheme === "file" && !document.isClosed);
  const same = open.find((document) => document.uri.fsPath === uri.fsPath);
  if (same !== undefined) {
    return same;
  }
  const wanted = await real(uri.fsPath);
  for (const document of open) {
    if (document.isDirty && (await real(document.uri.fsPath)) === wanted) {
      return document;
    }
  }
  return undefined;
}

/**
 * Throws an Error for a notebook that is open with unsaved changes. What the user sees of it is no text, and a file
 * written below it would leave them the choice between their changes and the agent's.
 */
async function needSavedNotebook(uri: vscode.Uri): Promise<void> {
  for (const notebook of vscode.workspace.notebookDocuments) {
    const { fsPath, scheme } = notebook.uri;
    if (notebook.isDirty && scheme === "file" && (fsPath === uri.fsPath || (await real(fsPath)) === (await real(uri.fsPath)))) {
      throw new Error(`${uri.fsPath} has unsaved changes in the notebook editor: save it there first`);
    }
  }
}

async function real(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch {
    return path;
  }
}

async function fromDisk(uri: vscode.Uri): Promise<string> {
  const bytes = await bytesOf(uri);
  if (bytes === undefined) {
    throw new RequestFailure(RESOURCE_NOT_FOUND, `the file does not exist: ${uri.fsPath}`);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    // VS Code knows the encoding the user set for the file.
    return (await documentOf(uri)).getText();
  }
}

async function bytesOf(uri: vscode.Uri): Promise<Uint8Array | undefined> {
  try {
    return await vscode.workspace.fs.readFile(uri);
  } catch (error) {
    if (isMissing(error)) {
      return undefined;
    }
    throw new Error(`${uri.fsPath} could not be read: ${messageOf(error)}`, { cause: error });
  }
}

/** Throws an Error for anything but text, and for text whose characters would be lost when written back. */
async function documentOf(uri: vscode.Uri): Promise<vscode.TextDocument> {
  let document: vscode.TextDocument;
  try {
    document = await vscode.workspace.openTextDocument(uri);
  } catch (error) {
    throw new Error(`VS Code cannot open ${uri.fsPath} as text. Is it a binary file, or too large?`, { cause: error });
  }
  if (document.getText().includes("\ufffd") && !(await holdsReplacement(uri))) {
    throw new Error(`${uri.fsPath} is not in the encoding VS Code reads it with: set files.encoding for it`);
  }
  return document;
}

/** Whether the file itself contains U+FFFD, as UTF-8. */
async function holdsReplacement(uri: vscode.Uri): Promise<boolean> {
  return Buffer.from((await bytesOf(uri)) ?? []).includes("\ufffd");
}

async function put(uri: vscode.Uri, content: string): Promise<void> {
  await needSavedNotebook(uri);
  const open = await openDocument(uri);
  if (open?.isDirty !== true && !(await exists(uri))) {
    await create(uri, content, open);
    return;
  }
  const document: vscode.TextDocument = open?.isDirty === true ? open : await documentOf(uri);
  const wasDirty = document.isDirty;
  const eol = breakOf(content) ?? document.eol;
  if (!wasDirty && (eol === "mixed" || !(await isCurrent(document)))) {
    // No document can hold this text, or it does not know yet what is on the disk: saving would undo that.
    await writeBytes(uri, content);
    return;
  }
  const kept = eol === "mixed" ? document.eol : eol;
  const wanted = withBreaks(content, kept);
  const edits = editsFor(document, wanted, kept);
  if (edits.length > 0) {
    const edit = new vscode.WorkspaceEdit();
    edit.set(document.uri, edits);
    if (!(await vscode.workspace.applyEdit(edit))) {
      throw new Error(`VS Code refused to edit ${uri.fsPath}. Is the file read-only?`);
    }
    if (document.getText() !== wanted) {
      throw new Error(`${uri.fsPath} changed while it was being written, or is read-only in VS Code: read it again`);
    }
  }
  if (wasDirty) {
    return;
  }
  if (isDirty(document) && !(await document.save())) {
    throw new Error(`${uri.fsPath} was changed in the editor but could not be saved. Is the file writable?`);
  }
  if (edits.length > 0 && !(await isCurrent(document))) {
    throw new Error(`${uri.fsPath} was not written. Is it read-only in VS Code (files.readonlyInclude)?`);
  }
}

/** Text that a document cannot hold, with the file's byte order mark (BOM). */
async function writeBytes(uri: vscode.Uri, content: string): Promise<void> {
  const before = (await bytesOf(uri)) ?? new Uint8Array();
  const [first, second, third] = before;
  if ((first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff)) {
    throw new Error(`${uri.fsPath} is UTF-16 with mixed line breaks, which cannot be written back unchanged`);
  }
  const mark = first === 0xef && second === 0xbb && third === 0xbf ? "\ufeff" : "";
  await vscode.workspace.fs.writeFile(uri, new TextEncoder().encode(mark + content));
}

/** The edit that turns the document's text into `wanted`: only the difference, so that the cursor and marks stay. */
function editsFor(document: vscode.TextDocument, wanted: string, eol: vscode.EndOfLine): vscode.TextEdit[] {
  if (eol !== document.eol) {
    const whole = new vscode.Range(0, 0, document.lineCount, 0);
    return [vscode.TextEdit.setEndOfLine(eol), vscode.TextEdit.replace(whole, wanted)];
  }
  const change = smallestChange(document.getText(), wanted);
  if (change === undefined) {
    return [];
  }
  const range = new vscode.Range(document.positionAt(change.start), document.positionAt(change.end));
  return [vscode.TextEdit.replace(range, change.text)];
}

/** Queried again: the edit has changed it. */
function isDirty(document: vscode.TextDocument): boolean {
  return document.isDirty;
}

/** Whether a document without changes has the text of its file; one that lags behind gets a moment to catch up. */
async function isCurrent(document: vscode.TextDocument): Promise<boolean> {
  const lf = (text: string): string => text.replace(/\r\n?/gu, "\n");
  const deadline = Date.now() + CATCH_UP;
  for (;;) {
    let disk: string;
    try {
      disk = await fromDisk(document.uri);
    } catch {
      return true; // There is nothing that could be lost.
    }
    if (document.isDirty || lf(disk) === lf(document.getText())) {
      return true;
    }
    if (Date.now() > deadline) {
      return false;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The line break that a text uses; undefined if it has none. */
function breakOf(content: string): vscode.EndOfLine | "mixed" | undefined {
  const kinds = new Set(content.match(/\r\n|\r|\n/gu));
  if (kinds.size > 1 || kinds.has("\r")) {
    return "mixed";
  }
  return kinds.has("\r\n") ? vscode.EndOfLine.CRLF : kinds.has("\n") ? vscode.EndOfLine.LF : undefined;
}

/** A document has one kind of line break: inserted text is converted to it. */
function withBreaks(content: string, eol: vscode.EndOfLine): string {
  return content.replace(/\r\n|\r|\n/gu, eol === vscode.EndOfLine.CRLF ? "\r\n" : "\n");
}

/** `open`: a document whose file was deleted; it takes up the written text. */
async function create(uri: vscode.Uri, content: string, open: vscode.TextDocument | undefined): Promise<void> {
  if (open !== undefined) {
    await vscode.workspace.fs.writeFile(uri, new TextEncoder().encode(content));
    return;
  }
  const edit = new vscode.WorkspaceEdit();
  edit.createFile(uri, { overwrite: false, contents: new TextEncoder().encode(content) });
  let made: boolean;
  try {
    made = await vscode.workspace.applyEdit(edit);
  } catch (error) {
    throw new Error(`${uri.fsPath} could not be created: ${messageOf(error)}`, { cause: error });
  }
  if (!made) {
    throw new Error(`${uri.fsPath} could not be created. Is its folder writable?`);
  }
}

async function exists(uri: vscode.Uri): Promise<boolean> {
  try {
    const { type } = await vscode.workspace.fs.stat(uri);
    if ((type & vscode.FileType.Directory) !== 0) {
      throw new RequestFailure(INVALID_PARAMS, `${uri.fsPath} is a folder`);
    }
    return true;
  } catch (error) {
    if (isMissing(error)) {
      return false;
    }
    throw error;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof vscode.FileSystemError && error.code === "FileNotFound";
}
