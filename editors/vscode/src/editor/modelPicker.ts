import * as vscode from "vscode";
import type { StartModels } from "../core/messages.js";

/** The model that the user picks among those of a provider; undefined: none. */
export async function pickModel({ provider, names, chosen }: StartModels): Promise<string | undefined> {
  // What is taken without a choice comes first, so that Enter takes it.
  const items = [chosen, ...names.filter((name) => name !== chosen)].map((label) => ({ label, description: label === chosen ? "chosen" : "" }));
  return (await vscode.window.showQuickPick(items, { title: `Models of ${provider}`, placeHolder: "Which model?" }))?.label;
}
