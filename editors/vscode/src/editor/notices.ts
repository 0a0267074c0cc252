import * as vscode from "vscode";
import { plain, short } from "../core/words.js";

export interface NoticeLink {
  readonly label: string;
  readonly command: string;
  readonly args?: readonly unknown[];
}

/** Characters of a notification that is folded to one line, as those without buttons are. */
const LINE = 58;

/**
 * Shows a notification that goes as soon as its matter is settled; one with buttons would stay until the user closes it.
 * It is one line, with all its links in view. Returns what closes it.
 */
export function notice(text: string, links: readonly NoticeLink[]): () => void {
  const room = links.reduce((left, { label }) => left - label.length - 2, LINE);
  const parts = links.map(({ label, command, args = [] }) => `[${label.replace(/[[\]]/gu, "")}](command:${command}?${encoded(args)})`);
  let close: () => void = () => undefined;
  const closed = new Promise<void>((resolve) => {
    close = resolve;
  });
  vscode.window
    .withProgress({ location: vscode.ProgressLocation.Notification, title: [plain(short(text, room)), ...parts].join("  ") }, (progress) => {
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
