import * as vscode from "vscode";

/** Milliseconds after typing or a click in an editor during which it is left alone. */
const STILL_AT_IT = 2_000;
const LOOK_AGAIN = 200;

/** Whether the user is working in a text editor: anything that opens automatically would take their key presses. */
export class Typing implements vscode.Disposable {
  private last = 0;
  private readonly listener: vscode.Disposable;

  constructor() {
    this.listener = vscode.window.onDidChangeTextEditorSelection(({ kind }) => {
      if (kind === vscode.TextEditorSelectionChangeKind.Keyboard || kind === vscode.TextEditorSelectionChangeKind.Mouse) {
        this.last = Date.now();
      }
    });
  }

  dispose(): void {
    this.listener.dispose();
  }

  get now(): boolean {
    return Date.now() - this.last < STILL_AT_IT;
  }

  /** Waits until the user pauses, or until it is no longer needed; returns whether it still is. */
  async pause(needed: () => boolean): Promise<boolean> {
    while (this.now && needed()) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN));
    }
    return needed();
  }
}
