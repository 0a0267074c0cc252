import * as vscode from "vscode";
import type { AgentHost } from "../agent/host.js";
import type { Program } from "../agent/program.js";
import { pointsIn, rememberedIn, serversIn } from "../core/listed.js";
import { plain, withoutIcons } from "../core/words.js";

const SERVER_ACTIONS = [
  { label: "Log", description: "what it wrote", command: "log" },
  { label: "Tools", description: "what it offers, and what of it the model gets", command: "tools" },
  { label: "Resources", description: "what can be mentioned", command: "resources" },
  { label: "Restart", description: "connects it anew, in this session", command: "restart" },
  { label: "Log in", description: "by OAuth, in a browser", command: "login" },
] as const;

/** What acp-coder remembers, which MCP servers it has, which rules hold: listed by its own commands, and changed in the session by them. */
export class AgentPanels {
  constructor(
    private readonly host: AgentHost,
    private readonly program: Program,
    private readonly show: () => Promise<void>,
  ) {}

  /** What the user allowed or forbade for ever in this folder, to be revoked. */
  async permissions(): Promise<void> {
    const known = rememberedIn(await this.told("/permissions"));
    if (known.length === 0) {
      await vscode.window.showInformationMessage("Nothing is remembered for this folder: you are asked about every change.");
      return;
    }
    const items = known.map(({ number, words }) => ({ label: withoutIcons(words), description: `#${number}`, number }));
    const chosen = await vscode.window.showQuickPick(items, { title: "Permissions", placeHolder: "Choose one to revoke it" });
    if (chosen !== undefined) {
      const revoke = "Revoke";
      const answer = await vscode.window.showWarningMessage(plain(`Revoke “${chosen.label}”? You are asked again.`), { modal: true }, revoke);
      if (answer === revoke) {
        await this.say(`/permissions revoke ${chosen.number}`);
      }
    }
  }

  async servers(): Promise<void> {
    const names = serversIn(await this.program.output(["config", "show"]));
    if (names.length === 0) {
      await vscode.window.showInformationMessage("There are no MCP servers in the configuration: `acp-coder mcp add` adds one.");
      return;
    }
    const items = [{ label: "All", description: "which are connected, and what they said" }, ...names.map((label) => ({ label, description: "" }))];
    const server = await vscode.window.showQuickPick(items, { title: "MCP servers", placeHolder: "Which one?" });
    if (server === items[0]) {
      await this.say("/mcp");
    } else if (server !== undefined) {
      const action = await vscode.window.showQuickPick(SERVER_ACTIONS, { title: server.label });
      if (action !== undefined) {
        await this.say(`/mcp ${action.command} ${server.label}`);
      }
    }
  }

  /** The rules that hold in this folder; a choice opens the configuration. */
  async rules(): Promise<void> {
    const items = pointsIn(await this.told("/policy")).map((label) => ({ label: withoutIcons(label) }));
    const chosen = await vscode.window.showQuickPick(items, { title: "Rules", placeHolder: "What holds here; choose one to open the configuration" });
    if (chosen !== undefined) {
      const file = vscode.Uri.file((await this.program.output(["config", "path"])).trim());
      await vscode.workspace.fs.stat(file).then(
        () => vscode.window.showTextDocument(file),
        () => vscode.window.showInformationMessage(plain(`There is no ${file.fsPath} yet: the defaults hold.`)),
      );
    }
  }

  /** What a command of a session's answers in this folder, without the session that is open. */
  private async told(command: string): Promise<string> {
    return await this.program.output(["-p", command]);
  }

  /** In the session that is open, whose answer stands in the chat. */
  private async say(command: string): Promise<void> {
    const session = await this.host.ready();
    session.prompt(command, [{ type: "text", text: command }]);
    await this.show();
  }
}
