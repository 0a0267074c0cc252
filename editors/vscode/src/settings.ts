import * as vscode from "vscode";

export const SECTION = "acpCoder";

const MILLISECONDS = 1000;

/** The current settings; each is described in package.json. */
export const settings = {
  command: (): string => read("command", ""),
  args: (): readonly string[] => texts(read<unknown>("arguments", [])),
  useUvx: (): boolean => read("useUvx", false),
  environment: (): Readonly<Record<string, string>> => textsByName(read<unknown>("environment", {})),
  startTimeout: (): number => number("startTimeout", 30) * MILLISECONDS,
  restoreSession: (): boolean => read("restoreSession", true),
  followMode: (): boolean => read("followMode", false),
  inline: (): boolean => read("inlineStatus.enabled", true),
  fadeAfter: (): number => number("inlineStatus.fadeAfter", 4) * MILLISECONDS,
  codeLens: (): boolean => read("inlineStatus.codeLens", false),
  openDiffs: (): boolean => read("permissions.openDiffs", true),
  keepTerminals: (): number => number("terminals.keep", 20),
  revealTerminals: (): boolean => read("terminals.reveal", false),
  traceWire: (): boolean => read("trace.wire", false),
};

export async function set(name: string, value: unknown): Promise<void> {
  await vscode.workspace.getConfiguration(SECTION).update(name, value, vscode.ConfigurationTarget.Global);
}

function read<T>(name: string, otherwise: T): T {
  return vscode.workspace.getConfiguration(SECTION).get<T>(name, otherwise);
}

function number(name: string, otherwise: number): number {
  const value = read<unknown>(name, otherwise);
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : otherwise;
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((entry): entry is string => typeof entry === "string") : [];
}

function textsByName(value: unknown): Record<string, string> {
  const entries = typeof value === "object" && value !== null ? Object.entries(value) : [];
  return Object.fromEntries(entries.filter((entry): entry is [string, string] => typeof entry[1] === "string"));
}
