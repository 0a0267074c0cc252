import * as vscode from "vscode";
import type { AgentHost } from "../agent/host.js";
import { INVALID_PARAMS, RequestFailure } from "../agent/link.js";
import { REVIEW } from "../core/findings.js";
import { diagnosticOf, documentSymbolOf, hoverOf, locationOf, workspaceEditOf, workspaceSymbolOf } from "./lsp.js";

/** Methods available to the agent; `_meta.lsp` of the client's capabilities names them (docs/lsp-extension.md). */
export const LSP_METHODS = [
  "_lsp/diagnostics",
  "_lsp/hover",
  "_lsp/definition",
  "_lsp/references",
  "_lsp/documentSymbols",
  "_lsp/workspaceSymbols",
  "_lsp/rename",
] as const;
export const LSP_NOTIFICATIONS = ["_lsp/publishDiagnostics", "_lsp/didSave"] as const;

const MAX_FILES = 500;
const MAX_DIAGNOSTICS = 200;
const MAX_ENTRIES = 1_000;
/** Milliseconds from a change of diagnostics to the notification: language servers report in bursts. */
const PUBLISH_AFTER = 200;

/** Lets the editor's own language servers answer the agent, in LSP's terms (positions 0-based, UTF-16). */
export class LanguageServers implements vscode.Disposable {
  private readonly disposables: vscode.Disposable[] = [];
  private readonly changed = new Map<string, vscode.Uri>();
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly host: () => AgentHost) {
    this.disposables.push(
      vscode.languages.onDidChangeDiagnostics(({ uris }) => {
        this.note(uris);
      }),
      vscode.workspace.onDidSaveTextDocument((document) => {
        this.tell("_lsp/didSave", document.uri, { textDocument: { uri: document.uri.toString() } });
      }),
    );
  }

  dispose(): void {
    clearTimeout(this.timer);
    vscode.Disposable.from(...this.disposables).dispose();
  }

  async answer(method: string, params: unknown): Promise<unknown> {
    switch (method) {
      case "_lsp/diagnostics":
        return diagnostics(optionalUri(params));
      case "_lsp/hover":
        return hoverOf(await run<vscode.Hover[]>("vscode.executeHoverProvider", uriOf(params), positionOf(params)));
      case "_lsp/definition":
        return locations(await run("vscode.executeDefinitionProvider", uriOf(params), positionOf(params)));
      case "_lsp/references":
        return references(params);
      case "_lsp/documentSymbols":
        return (await run<(vscode.DocumentSymbol | vscode.SymbolInformation)[]>("vscode.executeDocumentSymbolProvider", uriOf(params))).map(documentSymbolOf);
      case "_lsp/workspaceSymbols":
        return (await run<vscode.SymbolInformation[]>("vscode.executeWorkspaceSymbolProvider", textOf(params, "query")))
          .slice(0, MAX_ENTRIES)
          .map(workspaceSymbolOf);
      case "_lsp/rename":
        return rename(uriOf(params), positionOf(params), textOf(params, "newName"));
      default:
        throw new RequestFailure(-32601, `unknown method ${method}`);
    }
  }

  // --- notifications ----------------------------------------------------------------------------------------------

  private note(uris: readonly vscode.Uri[]): void {
    for (const uri of uris) {
      if (uri.scheme === "file") {
        this.changed.set(uri.toString(), uri);
      }
    }
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      const uris = [...this.changed.values()];
      this.changed.clear();
      for (const uri of uris) {
        const diagnostics = foreign(vscode.languages.getDiagnostics(uri)).slice(0, MAX_DIAGNOSTICS).map(diagnosticOf);
        this.tell("_lsp/publishDiagnostics", uri, { uri: uri.toString(), diagnostics });
      }
    }, PUBLISH_AFTER);
  }

  private tell(method: string, uri: vscode.Uri, params: object): void {
    const host = this.host();
    if (host.running === undefined || !knowsLsp(host) || vscode.workspace.getWorkspaceFolder(uri) === undefined) {
      return;
    }
    for (const session of host.all) {
      host.running.notify(method, { sessionId: session.id, ...params });
    }
  }
}

/** Without the findings of a review, which the agent made. */
function foreign(diagnostics: readonly vscode.Diagnostic[]): vscode.Diagnostic[] {
  return diagnostics.filter(({ source }) => source !== REVIEW);
}

/** Whether the agent reads published diagnostics, according to `agentCapabilities._meta.lsp`. */
export function knowsLsp(host: AgentHost): boolean {
  const meta = host.capabilities._meta?.["lsp"];
  return typeof meta === "object" && meta !== null;
}

/** The current problems, as text for agents that do not ask for them. */
export function problemsAsText(): string {
  const lines: string[] = [];
  for (const [uri, found] of vscode.languages.getDiagnostics()) {
    for (const diagnostic of uri.scheme === "file" ? found.slice(0, MAX_DIAGNOSTICS) : []) {
      const { line, character } = diagnostic.range.start;
      const severity = ["error", "warning", "information", "hint"][diagnostic.severity] ?? "error";
      const source = diagnostic.source === undefined ? "" : ` [${diagnostic.source}]`;
      lines.push(`${vscode.workspace.asRelativePath(uri)}:${String(line + 1)}:${String(character + 1)}: ${severity}: ${diagnostic.message}${source}`);
    }
  }
  return lines.slice(0, MAX_ENTRIES).join("\n");
}

function diagnostics(uri: vscode.Uri | undefined): { items: { uri: string; diagnostics: unknown[] }[] } {
  const all: (readonly [vscode.Uri, readonly vscode.Diagnostic[]])[] =
    uri === undefined ? vscode.languages.getDiagnostics() : [[uri, vscode.languages.getDiagnostics(uri)]];
  const items = all
    .filter(([place, found]) => place.scheme === "file" && (found.length > 0 || uri !== undefined))
    .slice(0, MAX_FILES)
    .map(([place, found]) => ({ uri: place.toString(), diagnostics: found.slice(0, MAX_DIAGNOSTICS).map(diagnosticOf) }));
  return { items };
}

/** VS Code's providers include the declaration; `context.includeDeclaration: false` removes it. */
async function references(params: unknown): Promise<unknown[]> {
  const [uri, position] = [uriOf(params), positionOf(params)];
  const found = locations(await run("vscode.executeReferenceProvider", uri, position));
  const context = record(params, "params")["context"];
  if (typeof context !== "object" || context === null || (context as Record<string, unknown>)["includeDeclaration"] !== false) {
    return found;
  }
  const declared = new Set(locations(await run("vscode.executeDefinitionProvider", uri, position)).map((place) => JSON.stringify(place)));
  return found.filter((place) => !declared.has(JSON.stringify(place)));
}

/** What a rename would change; changes nothing. Rejects renames that would create, move or delete files. */
async function rename(uri: vscode.Uri, at: vscode.Position, newName: string): Promise<unknown> {
  const edit = await vscode.commands.executeCommand<vscode.WorkspaceEdit | undefined>("vscode.executeDocumentRenameProvider", uri, at, newName);
  if (edit === undefined) {
    return null;
  }
  if (edit.size !== edit.entries().length) {
    throw new RequestFailure(INVALID_PARAMS, "this rename would also make, move or delete files");
  }
  return workspaceEditOf(edit);
}

function locations(found: readonly (vscode.Location | vscode.LocationLink)[]): unknown[] {
  return found.slice(0, MAX_ENTRIES).map(locationOf);
}

async function run<T extends readonly unknown[] = (vscode.Location | vscode.LocationLink)[]>(
  command: string,
  ...args: readonly unknown[]
): Promise<T> {
  const found = await vscode.commands.executeCommand<T | undefined>(command, ...args);
  return found ?? ([] as unknown as T);
}

// --- parameters ---------------------------------------------------------------------------------------------------

function record(value: unknown, name: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null) {
    throw new RequestFailure(INVALID_PARAMS, `${name}: expected an object`);
  }
  return value as Record<string, unknown>;
}

function optionalUri(params: unknown): vscode.Uri | undefined {
  const given = typeof params === "object" && params !== null ? (params as Record<string, unknown>) : {};
  return given["uri"] === undefined && given["textDocument"] === undefined ? undefined : uriOf(params);
}

function uriOf(params: unknown): vscode.Uri {
  const given = record(params, "params");
  const uri = given["uri"] ?? record(given["textDocument"], "textDocument")["uri"];
  if (typeof uri !== "string" || !/^[a-z][a-z0-9+.-]*:/iu.test(uri)) {
    throw new RequestFailure(INVALID_PARAMS, "textDocument.uri: expected a URI");
  }
  return vscode.Uri.parse(uri, true);
}

function positionOf(params: unknown): vscode.Position {
  return position(record(params, "params")["position"], "position");
}

function position(value: unknown, name: string): vscode.Position {
  const { line, character } = record(value, name);
  if (!isIndex(line) || !isIndex(character)) {
    throw new RequestFailure(INVALID_PARAMS, `${name}: expected line and character, counted from 0`);
  }
  return new vscode.Position(line, character);
}

function textOf(params: unknown, name: string): string {
  const text = record(params, "params")[name];
  if (typeof text !== "string") {
    throw new RequestFailure(INVALID_PARAMS, `${name}: expected text`);
  }
  return text;
}

function isIndex(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0;
}
