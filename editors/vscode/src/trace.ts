import * as vscode from "vscode";

const MOST_CHARS = 20_000;

/** The wire traffic, one message per line, in a separate output channel. */
export class Trace implements vscode.Disposable {
  private channel: vscode.OutputChannel | undefined;

  constructor(private readonly enabled: () => boolean) {}

  dispose(): void {
    this.channel?.dispose();
  }

  readonly message = (direction: "sent" | "received", message: unknown): void => {
    if (!this.enabled()) {
      return;
    }
    const text = JSON.stringify(message);
    const shown = text.length > MOST_CHARS ? `${text.slice(0, MOST_CHARS)}… (${String(text.length)} characters)` : text;
    this.open().appendLine(`${new Date().toISOString()} ${direction === "sent" ? "→" : "←"} ${shown}`);
  };

  show(): void {
    const channel = this.open();
    if (!this.enabled()) {
      channel.appendLine("The setting acpCoder.trace.wire is off, so nothing is traced.");
    }
    channel.show(true);
  }

  private open(): vscode.OutputChannel {
    this.channel ??= vscode.window.createOutputChannel("acp-coder: wire", "jsonl");
    return this.channel;
  }
}
