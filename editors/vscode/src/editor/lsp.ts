/** Converts VS Code's values to LSP 3.17. Returns only plain data. */
import * as vscode from "vscode";

export interface Position {
  readonly line: number;
  readonly character: number;
}
export interface Range {
  readonly start: Position;
  readonly end: Position;
}

export function rangeOf({ start, end }: vscode.Range): Range {
  return {
    start: { line: start.line, character: start.character },
    end: { line: end.line, character: end.character },
  };
}

/** LSP counts severities and symbol kinds from 1, VS Code from 0. */
export function diagnosticOf(diagnostic: vscode.Diagnostic): Record<string, unknown> {
  const { code, source } = diagnostic;
  const plain = typeof code === "object" ? code.value : code;
  return {
    range: rangeOf(diagnostic.range),
    severity: diagnostic.severity + 1,
    message: diagnostic.message,
    ...(source === undefined ? {} : { source }),
    ...(plain === undefined ? {} : { code: plain }),
  };
}

export function hoverOf(hovers: readonly vscode.Hover[]): { contents: { kind: "markdown"; value: string }; range?: Range } | null {
  const texts = hovers.flatMap((hover) => hover.contents.map(markdownOf)).filter((text) => text.trim() !== "");
  const range = hovers.find((hover) => hover.range !== undefined)?.range;
  if (texts.length === 0) {
    return null;
  }
  return { contents: { kind: "markdown", value: texts.join("\n\n---\n\n") }, ...(range === undefined ? {} : { range: rangeOf(range) }) };
}

/** Providers still return the older form, a text with its language, that VS Code's types call deprecated. */
function markdownOf(content: string | { readonly language?: string; readonly value: string }): string {
  if (typeof content === "string") {
    return content;
  }
  return content.language !== undefined ? `\`\`\`${content.language}\n${content.value}\n\`\`\`` : content.value;
}

export function locationOf(location: vscode.Location | vscode.LocationLink): { uri: string; range: Range } {
  return "targetUri" in location
    ? { uri: location.targetUri.toString(), range: rangeOf(location.targetSelectionRange ?? location.targetRange) }
    : { uri: location.uri.toString(), range: rangeOf(location.range) };
}

export function documentSymbolOf(symbol: vscode.DocumentSymbol | vscode.SymbolInformation): Record<string, unknown> {
  if (!("selectionRange" in symbol)) {
    return workspaceSymbolOf(symbol);
  }
  return {
    name: symbol.name,
    kind: symbol.kind + 1,
    range: rangeOf(symbol.range),
    selectionRange: rangeOf(symbol.selectionRange),
    ...(symbol.detail === "" ? {} : { detail: symbol.detail }),
    ...(symbol.children.length === 0 ? {} : { children: symbol.children.map(documentSymbolOf) }),
  };
}

export function workspaceSymbolOf(symbol: vscode.SymbolInformation): Record<string, unknown> {
  return {
    name: symbol.name,
    kind: symbol.kind + 1,
    location: locationOf(symbol.location),
    ...(symbol.containerName === "" ? {} : { containerName: symbol.containerName }),
  };
}

export function workspaceEditOf(edit: vscode.WorkspaceEdit): { changes: Record<string, { range: Range; newText: string }[]> } {
  const changes = edit.entries().map(([uri, edits]) => [uri.toString(), edits.map(({ range, newText }) => ({ range: rangeOf(range), newText }))] as const);
  return { changes: Object.fromEntries(changes) };
}
