import type { SessionInfo } from "@agentclientprotocol/sdk";
import * as vscode from "vscode";
import type { AgentHost } from "../agent/host.js";
import type { SessionFact } from "../agent/session.js";
import { Later } from "../core/later.js";
import { ago, messageOf, short } from "../core/words.js";

/** Milliseconds after a change until the agent's list is requested again. */
const REFRESH = 200;

/** The current and earlier sessions of this folder, as listed by the agent. */
export class SessionsTree implements vscode.TreeDataProvider<SessionInfo>, vscode.Disposable {
  private readonly emitter = new vscode.EventEmitter<undefined>();
  readonly onDidChangeTreeData = this.emitter.event;
  private readonly view: vscode.TreeView<SessionInfo>;
  private readonly disposables: vscode.Disposable[];
  private readonly drawing = new Later(REFRESH, () => {
    this.emitter.fire(undefined);
  });

  constructor(private readonly host: AgentHost) {
    this.view = vscode.window.createTreeView("acpCoder.sessions", { treeDataProvider: this });
    this.disposables = [
      this.emitter,
      this.view,
      new vscode.Disposable(
        host.changed.on((change) => {
          const ofSession = change.kind === "session" && ["title", "running", "permissions"].some((fact) => change.change.facts.has(fact as SessionFact));
          if (change.kind !== "session" || ofSession) {
            this.refresh();
          }
        }),
      ),
    ];
  }

  dispose(): void {
    this.drawing.dispose();
    vscode.Disposable.from(...this.disposables).dispose();
  }

  refresh(): void {
    this.drawing.soon();
  }

  async getChildren(element?: SessionInfo): Promise<SessionInfo[]> {
    if (element !== undefined || this.host.running === undefined) {
      return [];
    }
    try {
      const listed = await this.host.listSessions();
      this.view.message = listed.length === 0 ? "No sessions in this folder yet." : "";
      return listed;
    } catch (error) {
      this.view.message = `The sessions could not be listed: ${messageOf(error)}`;
      return [];
    }
  }

  getTreeItem(info: SessionInfo): vscode.TreeItem {
    const open = this.host.session(info.sessionId);
    const active = this.host.active?.id === info.sessionId;
    const title = open?.title ?? "";
    const label = short(title === "" ? (info.title ?? "") : title, 120) || "Untitled";
    const item = new vscode.TreeItem(label);
    item.id = info.sessionId;
    const waits = (open?.questions.length ?? 0) > 0;
    item.description = [waits ? "waits for you" : "", active ? "open" : "", ago(info.updatedAt ?? undefined)].filter((text) => text !== "").join(" · ");
    item.tooltip = [label, info.cwd, info.updatedAt ?? "", info.sessionId].filter((text) => text !== "").join("\n");
    item.iconPath = waits ? new vscode.ThemeIcon("shield", new vscode.ThemeColor("charts.yellow")) : new vscode.ThemeIcon(open?.running === true ? "loading~spin" : active ? "comment-discussion" : "comment");
    item.contextValue = "session";
    item.command = { title: "Open", command: "acpCoder.openSession", arguments: [info] };
    return item;
  }
}
