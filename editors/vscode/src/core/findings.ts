/** What a review found at one place: of `_meta.findings` of a call (docs/extending.md). */
export interface Finding {
  readonly path: string;
  /** Counted from 1. */
  readonly line: number;
  readonly severity: "error" | "warning" | "info";
  readonly message: string;
}

/** The source of diagnostics that show findings: the agent knows them already. */
export const REVIEW = "acp-coder review";
const SEVERITIES: ReadonlySet<unknown> = new Set(["error", "warning", "info"]);
const MOST = 1_000;

/** The findings in a call's `_meta`; `undefined` if it says nothing of any. What is not one is left out. */
export function findingsOf(meta: unknown): readonly Finding[] | undefined {
  const listed = typeof meta === "object" && meta !== null ? (meta as Record<string, unknown>)["findings"] : undefined;
  return Array.isArray(listed) ? listed.slice(0, MOST).filter(isFinding) : undefined;
}

function isFinding(value: unknown): value is Finding {
  if (typeof value !== "object" || value === null) {
    return false;
  }
  const { path, line, severity, message } = value as Record<string, unknown>;
  return typeof path === "string" && path.startsWith("/") && Number.isInteger(line) && (line as number) >= 1 && SEVERITIES.has(severity) && typeof message === "string";
}

/** By file, in their order. */
export function byFile(findings: readonly Finding[]): Map<string, Finding[]> {
  const found = new Map<string, Finding[]>();
  for (const finding of findings) {
    found.set(finding.path, [...(found.get(finding.path) ?? []), finding]);
  }
  return found;
}
