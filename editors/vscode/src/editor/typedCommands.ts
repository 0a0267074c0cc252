import * as vscode from "vscode";

/** Characters of a command's output that are kept; the end of it. */
const KEPT = 100_000;

/** What the user ran last in a terminal of VS Code with shell integration, and its output. */
export class TypedCommands implements vscode.Disposable {
  last: { readonly command: string; readonly output: string } | undefined;
  /** The agent's own terminals have no shell, and so no such commands. */
  private readonly listener = vscode.window.onDidStartTerminalShellExecution(({ execution }) => {
    this.read(execution).catch(() => undefined);
  });

  dispose(): void {
    this.listener.dispose();
  }

  private async read(execution: vscode.TerminalShellExecution): Promise<void> {
    // What was run before, in another terminal, may still write: it does not come back.
    const run = { command: execution.commandLine.value, output: "" };
    this.last = run;
    for await (const chunk of execution.read()) {
      run.output = (run.output + chunk).slice(-KEPT).replace(/^[\udc00-\udfff]/u, "");
      run.command = execution.commandLine.value;
    }
  }
}
