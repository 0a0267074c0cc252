import type { ContentBlock, SessionInfo } from "@agentclientprotocol/sdk";
import * as vscode from "vscode";
import type { AgentHost } from "../agent/host.js";
import { problemsAsText } from "../editor/languageServers.js";
import type { TypedCommands } from "../editor/typedCommands.js";
import { pageLinks, pageOf } from "../core/contentBlocks.js";
import { labelOfUri } from "../core/uris.js";
import { ago, beginning, plainText, short } from "../core/words.js";
import type { Attachment, Completion } from "../core/messages.js";

const MOST_FILES = 40;
const EXCLUDED = "{**/node_modules/**,**/.git/**,**/.venv/**,**/__pycache__/**,**/dist/**,**/target/**}";
const SELECTION_CHARS = 200_000;
const LABEL_CHARS = 60;
/** Milliseconds that the list waits for git, and for language servers. */
const PATIENCE = 1_500;

/**
 * Completions after an `@`: the selection, the problems, what is changed in git, the last command of a terminal; open
 * files, files and folders by name, symbols, and `sessions` by their titles; or the address of a web page.
 */
export async function complete(query: string, commands: TypedCommands, sessions?: () => Promise<readonly SessionInfo[]>): Promise<Completion[]> {
  const page = pageOf(query);
  if (page !== undefined) {
    return [{ insert: page, label: page, detail: "the web page, which the agent reads", attachment: { kind: "page", uri: page, label: page } }];
  }
  const wanted = query.toLowerCase();
  const diff = "diff".startsWith(wanted) ? await inTime(diffEntry()) : undefined;
  const entries = [selectionEntry(), problemsEntry(), diff, terminalEntry(commands)];
  const fixed = entries.filter((entry) => entry !== undefined).filter(({ insert }) => insert.startsWith(wanted));
  const open = vscode.window.tabGroups.all
    .flatMap((group) => group.tabs)
    .flatMap(({ input }) => (input instanceof vscode.TabInputText && input.uri.scheme === "file" ? [input.uri] : []));
  const found = wanted === "" ? [] : await vscode.workspace.findFiles(`**/*${globOf(query)}*`, EXCLUDED, MOST_FILES);
  const inFolders =
    wanted === "" || wanted.includes("/") ? [] : await vscode.workspace.findFiles(`**/*${globOf(query)}*/**`, EXCLUDED, MOST_FILES / 2);
  const seen = new Set<string>();
  const files = [...open, ...found, ...inFolders].filter((uri) => {
    const path = vscode.workspace.asRelativePath(uri).toLowerCase();
    const fresh = !seen.has(uri.toString()) && path.includes(wanted);
    seen.add(uri.toString());
    return fresh;
  });
  files.sort((left, right) => rank(left, wanted) - rank(right, wanted));
  const folders = new Map(inFolders.flatMap((uri) => foldersLike(uri, wanted)));
  return [...fixed, ...folders.values(), ...files.slice(0, MOST_FILES).map(fileEntry), ...(await symbolEntries(wanted)), ...(await sessionEntries(wanted, sessions))];
}

/** What comes soon; nothing if it fails: the rest of the list is not withheld for it. */
async function inTime<T>(asked: Thenable<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, PATIENCE, undefined);
  });
  try {
    return await Promise.race([asked, late]);
  } catch {
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

/** The folders above a file whose name has the words. */
function foldersLike(uri: vscode.Uri, wanted: string): [string, Completion][] {
  const parts = vscode.workspace.asRelativePath(uri, false).split("/").slice(0, -1);
  return parts.flatMap((name, index): [string, Completion][] => {
    const path = `${parts.slice(0, index + 1).join("/")}/`;
    const folder = vscode.Uri.joinPath(uri, ...Array.from({ length: parts.length - index }, () => ".."));
    return name.toLowerCase().includes(wanted) ? [[path, { insert: path, label: `${name}/`, detail: path, attachment: { kind: "file", uri: folder.toString(), label: path } }]] : [];
  });
}

const MOST_SYMBOLS = 10;

async function symbolEntries(wanted: string): Promise<Completion[]> {
  if (wanted.length < 3 || wanted.includes("/")) {
    return [];
  }
  const found = (await inTime(vscode.commands.executeCommand<vscode.SymbolInformation[] | undefined>("vscode.executeWorkspaceSymbolProvider", wanted))) ?? [];
  return found.filter(({ location: { uri } }) => uri.scheme === "file").slice(0, MOST_SYMBOLS).map(({ name, location: { uri, range } }) => {
    const attachment = rangeAttachment(uri, range);
    return { insert: name, label: name, detail: attachment.label, attachment };
  });
}

const MOST_SESSIONS = 10;

/** Those whose title has the words, newest first; all of them for `session`. */
async function sessionEntries(wanted: string, sessions?: () => Promise<readonly SessionInfo[]>): Promise<Completion[]> {
  if (sessions === undefined || wanted.length < 3 || wanted.includes("/")) {
    return [];
  }
  const found = ((await inTime(sessions())) ?? []).filter(({ title }) => (title ?? "") !== "");
  const named = found.filter(({ title }) => "session".startsWith(wanted) || insertOf(title ?? "").toLowerCase().includes(wanted));
  return named.slice(0, MOST_SESSIONS).map(({ sessionId, title, updatedAt }) => {
    const label = short(title ?? "", LABEL_CHARS);
    return { insert: insertOf(label), label, detail: ["session", ago(updatedAt ?? undefined)].filter((part) => part !== "").join(", "), attachment: { kind: "session", sessionId, label } };
  });
}

/** A title as one word. */
function insertOf(title: string): string {
  return title.trim().replace(/[\s@]+/gu, "-");
}

interface Repository {
  readonly state: { readonly workingTreeChanges: readonly unknown[]; readonly indexChanges: readonly unknown[] };
  diff(cached?: boolean): Promise<string>;
}

function repositories(): readonly Repository[] {
  const git = vscode.extensions.getExtension<{ getAPI(version: 1): { readonly repositories: readonly Repository[] } }>("vscode.git");
  try {
    return git?.isActive === true ? git.exports.getAPI(1).repositories : [];
  } catch {
    return []; // It is there, and switched off.
  }
}

async function diffEntry(): Promise<Completion | undefined> {
  const changed = repositories().filter(({ state }) => state.workingTreeChanges.length + state.indexChanges.length > 0);
  const texts = await Promise.all(changed.flatMap((one) => [one.diff(true), one.diff()]));
  const text = beginning(texts.join(""), SELECTION_CHARS);
  return text === "" ? undefined : { insert: "diff", label: "diff", detail: "what is changed in git", attachment: { kind: "text", label: "git diff", text } };
}

function terminalEntry({ last }: TypedCommands): Completion | undefined {
  if (last === undefined) {
    return undefined;
  }
  const label = short(last.command, LABEL_CHARS);
  return { insert: "terminal", label: "terminal", detail: label, attachment: { kind: "text", label, text: `$ ${last.command}\n${plainText(last.output)}` } };
}

function rank(uri: vscode.Uri, wanted: string): number {
  const name = labelOfUri(uri.path).toLowerCase();
  return (name === wanted ? 0 : name.startsWith(wanted) ? 1 : name.includes(wanted) ? 2 : 3) * 1000 + uri.path.length / 10;
}

/** Case-insensitive, and treats the input as text, not as a pattern. */
function globOf(query: string): string {
  return Array.from(query)
    .map((char) => (/[a-z]/iu.test(char) ? `[${char.toLowerCase()}${char.toUpperCase()}]` : /[*?[\]{}!]/u.test(char) ? "?" : char))
    .join("");
}

function fileEntry(uri: vscode.Uri): Completion {
  const path = vscode.workspace.asRelativePath(uri);
  return { insert: path, label: labelOfUri(uri.path), detail: path, attachment: { kind: "file", uri: uri.toString(), label: path } };
}

function selectionEntry(): Completion | undefined {
  const attachment = selectionAttachment();
  return attachment === undefined ? undefined : { insert: "selection", label: "selection", detail: attachment.label, attachment };
}

function problemsEntry(): Completion | undefined {
  const count = vscode.languages.getDiagnostics().reduce((sum, [, found]) => sum + found.length, 0);
  return { insert: "problems", label: "problems", detail: `what the Problems view shows (${String(count)})`, attachment: { kind: "problems", label: "problems" } };
}

/** The selection of the last used editor, if any. */
export function selectionAttachment(): (Attachment & { kind: "selection" }) | undefined {
  const editor = vscode.window.activeTextEditor ?? vscode.window.visibleTextEditors.find(({ selection }) => !selection.isEmpty);
  if (editor === undefined || editor.selection.isEmpty || editor.document.uri.scheme === "output") {
    return undefined;
  }
  return rangeAttachment(editor.document.uri, editor.selection);
}

export function rangeAttachment(uri: vscode.Uri, { start, end }: vscode.Range): Attachment & { kind: "selection" } {
  const endLine = end.character === 0 && end.line > start.line ? end.line : end.line + 1;
  const lines = start.line + 1 === endLine ? String(endLine) : `${String(start.line + 1)}-${String(endLine)}`;
  return { kind: "selection", uri: uri.toString(), label: `${labelOfUri(uri.path)}:${lines}`, startLine: start.line + 1, endLine };
}

/** The prompt as ACP content blocks. Anything the agent does not accept as a block becomes text. */
export async function blocksOf(text: string, attachments: readonly Attachment[], host: AgentHost, sessionText?: (id: string) => Promise<string>): Promise<ContentBlock[]> {
  const embedded = host.capabilities.promptCapabilities?.embeddedContext === true;
  const blocks: ContentBlock[] = [{ type: "text", text }];
  for (const attachment of attachments) {
    switch (attachment.kind) {
      case "file":
        blocks.push({ type: "resource_link", uri: attachment.uri, name: attachment.label });
        break;
      case "selection": {
        const document = await vscode.workspace.openTextDocument(vscode.Uri.parse(attachment.uri));
        const range = new vscode.Range(attachment.startLine - 1, 0, attachment.endLine, 0);
        const uri = `${attachment.uri}#L${String(attachment.startLine)}-${String(attachment.endLine)}`;
        blocks.push(resource(uri, attachment.label, beginning(document.getText(range), SELECTION_CHARS), embedded));
        break;
      }
      case "problems":
        if (!resolvesProblems(host)) {
          blocks.push(resource("vscode:problems", "Problems", problemsAsText() || "(no problems)", embedded));
        } else if (!/@(?:problems|diagnostics)\b/u.test(text)) {
          blocks.push({ type: "text", text: "\n@problems" });
        }
        break;
      case "session":
        if (sessionText !== undefined) {
          const told = beginning(await sessionText(attachment.sessionId), SELECTION_CHARS);
          blocks.push(resource(`acp-coder:session/${attachment.sessionId}/${encodeURIComponent(attachment.label)}`, attachment.label, told, embedded));
        }
        break;
      case "page":
        break; // With those that are only typed.
      case "text":
        blocks.push(resource(`vscode:${encodeURIComponent(attachment.label)}`, attachment.label, attachment.text, embedded));
        break;
      case "image":
        blocks.push({ type: "image", mimeType: attachment.mimeType, data: attachment.data });
        break;
    }
  }
  return [...blocks, ...pageLinks(text, attachments)];
}

/** Whether the agent itself replaces `@problems` (`agentCapabilities._meta.lsp.mentions`). */
function resolvesProblems(host: AgentHost): boolean {
  const lsp = host.capabilities._meta?.["lsp"] as { mentions?: unknown } | undefined;
  return Array.isArray(lsp?.mentions) && lsp.mentions.includes("@problems");
}

function resource(uri: string, label: string, text: string, embedded: boolean): ContentBlock {
  return embedded
    ? { type: "resource", resource: { uri, text, mimeType: "text/plain" } }
    : { type: "text", text: `\n${label}:\n\`\`\`\n${text}\n\`\`\`\n` };
}
