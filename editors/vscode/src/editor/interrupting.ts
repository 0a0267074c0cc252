import * as vscode from "vscode";
import type { AgentHost } from "../agent/host.js";
import { plural } from "../core/words.js";

/** Whether the agent may be restarted now: asked only while it works. */
export async function mayRestart(host: AgentHost): Promise<boolean> {
  const working = host.all.filter((session) => session.working).length;
  if (working === 0) {
    return true;
  }
  const restart = "Restart agent";
  const turns = working === 1 ? "The agent is working" : `The agent is working in ${plural(working, "session")}`;
  return (await vscode.window.showWarningMessage(`${turns}. Restarting it stops that.`, { modal: true }, restart)) === restart;
}
