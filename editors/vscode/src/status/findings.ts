import * as vscode from "vscode";
import { byFile, REVIEW, type Finding } from "../core/findings.js";
import type { ToolCalls } from "../core/toolCalls.js";

const SEVERITIES: Readonly<Record<Finding["severity"], vscode.DiagnosticSeverity>> = {
  error: vscode.DiagnosticSeverity.Error,
  warning: vscode.DiagnosticSeverity.Warning,
  info: vscode.DiagnosticSeverity.Information,
};

/** The findings of the last review, as diagnostics, until the next one. */
export class Findings implements vscode.Disposable {
  private readonly shown = vscode.languages.createDiagnosticCollection(REVIEW);
  private readonly listening: vscode.Disposable;

  constructor(calls: ToolCalls) {
    this.listening = new vscode.Disposable(
      calls.changed.on(({ record, before }) => {
        if (record.findings !== undefined && record.findings !== before?.findings && !record.replayed) {
          this.show(record.findings);
        }
      }),
    );
  }

  dispose(): void {
    vscode.Disposable.from(this.listening, this.shown).dispose();
  }

  private show(findings: readonly Finding[]): void {
    this.shown.clear();
    for (const [path, found] of byFile(findings)) {
      this.shown.set(vscode.Uri.file(path), found.map(diagnosticOf));
    }
  }
}

function diagnosticOf({ line, severity, message }: Finding): vscode.Diagnostic {
  const range = new vscode.Range(line - 1, 0, line - 1, Number.MAX_SAFE_INTEGER);
  const diagnostic = new vscode.Diagnostic(range, message, SEVERITIES[severity]);
  diagnostic.source = REVIEW;
  return diagnostic;
}
