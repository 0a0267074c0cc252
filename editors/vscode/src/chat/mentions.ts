import type { ContentBlock } from "@agentclientprotocol/sdk";
import * as vscode from "vscode";
import type { AgentHost } from "../agent/host.js";
import { problemsAsText } from "../editor/languageServers.js";
import { labelOfUri } from "../core/uris.js";
import type { Attachment, Completion } from "../core/messages.js";

const MOST_FILES = 40;
const EXCLUDED = "{**/node_modules/**,**/.git/**,**/.venv/**,**/__pycache__/**,**/dist/**,**/target/**}";
const SELECTION_CHARS = 200_000;

/** Completions after an `@`: the selection, the problems, open files and files by name. */
export async function complete(query: string): Promise<Completion[]> {
  const wanted = query.toLowerCase();
  const fixed = [selectionEntry(), problemsEntry()].filter((entry) => entry !== undefined).filter(({ insert }) => insert.startsWith(wanted));
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
  return [...fixed, ...files.slice(0, MOST_FILES).map(fileEntry)];
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
  const { start, end } = editor.selection;
  const endLine = end.character === 0 && end.line > start.line ? end.line : end.line + 1;
  const uri = editor.document.uri.toString();
  const lines = start.line + 1 === endLine ? String(endLine) : `${String(start.line + 1)}-${String(endLine)}`;
  return { kind: "selection", uri, label: `${labelOfUri(editor.document.uri.path)}:${lines}`, startLine: start.line + 1, endLine };
}

/** The prompt as ACP content blocks. Anything the agent does not accept as a block becomes text. */
export async function blocksOf(text: string, attachments: readonly Attachment[], host: AgentHost): Promise<ContentBlock[]> {
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
        blocks.push(resource(uri, attachment.label, document.getText(range).slice(0, SELECTION_CHARS), embedded));
        break;
      }
      case "problems":
        if (!resolvesProblems(host)) {
          blocks.push(resource("vscode:problems", "Problems", problemsAsText() || "(no problems)", embedded));
        } else if (!/@(?:problems|diagnostics)\b/u.test(text)) {
          blocks.push({ type: "text", text: "\n@problems" });
        }
        break;
      case "image":
        blocks.push({ type: "image", mimeType: attachment.mimeType, data: attachment.data });
        break;
    }
  }
  return blocks;
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
