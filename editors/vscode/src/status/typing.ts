import * as vscode from "vscode";

/** Milliseconds after the user typed or clicked in an editor in which it is left alone. */
const STILL_AT_IT = 2_000;
const LOOK_AGAIN = 200;

/** Whether the user works in a text editor just now: what opens by itself then would take their keys. */
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

  /** Waits until the user pauses, or until nobody needs it any more; says whether it is still needed. */
  async pause(needed: () => boolean): Promise<boolean> {
    while (this.now && needed()) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN));
    }
    return needed();
  }
}
