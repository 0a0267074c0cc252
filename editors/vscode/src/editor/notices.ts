import * as vscode from "vscode";
import { plain } from "../core/words.js";

export interface NoticeLink {
  readonly label: string;
  readonly command: string;
  readonly args?: readonly unknown[];
}

/**
 * Shows a notification that goes as soon as its matter is settled; one with buttons would stay until the user closes it.
 * Returns what closes it.
 */
export function notice(text: string, links: readonly NoticeLink[]): () => void {
  const parts = links.map(({ label, command, args = [] }) => `[${label.replace(/[[\]]/gu, "")}](command:${command}?${encoded(args)})`);
  let close: () => void = () => undefined;
  const closed = new Promise<void>((resolve) => {
    close = resolve;
  });
  vscode.window
    .withProgress({ location: vscode.ProgressLocation.Notification, title: [plain(text), ...parts].join("  ") }, (progress) => {
      progress.report({ increment: 100 }); // A full bar rests.
      return closed;
    })
    .then(undefined, () => undefined);
  return close;
}

/** As the address of a link in a notification, which ends at a parenthesis. */
export function encoded(args: readonly unknown[]): string {
  return encodeURIComponent(JSON.stringify(args)).replace(/[()'*]/gu, (char) => `%${char.charCodeAt(0).toString(16)}`);
}
