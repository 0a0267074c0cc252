import * as vscode from "vscode";
import type { Forms } from "../agent/forms.js";
import type { AgentHost } from "../agent/host.js";
import { waiting } from "../chat/view.js";
import { Later } from "../core/later.js";
import type { ToolCalls } from "../core/toolCalls.js";
import { plural, short } from "../core/words.js";

/** The agent's state: how many tool calls run, whether it waits for the user, whether it has a problem. */
export class StatusBar implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem("acpCoder.status", vscode.StatusBarAlignment.Left, 50);
  private readonly disposables: vscode.Disposable[];
  private readonly drawing = new Later(50, () => {
    this.draw();
  });

  constructor(
    private readonly calls: ToolCalls,
    private readonly host: AgentHost,
    private readonly forms: Forms,
  ) {
    const { soon } = this.drawing;
    this.item.name = "acp-coder";
    this.disposables = [this.item, new vscode.Disposable(calls.changed.on(soon)), new vscode.Disposable(host.changed.on(soon)), new vscode.Disposable(forms.changed.on(soon))];
    this.draw();
    this.item.show();
  }

  dispose(): void {
    this.drawing.dispose();
    vscode.Disposable.from(...this.disposables).dispose();
  }

  private draw(): void {
    const questions = waiting(this.host, this.forms);
    const asked = this.host.questions[0]?.title ?? this.forms.now?.message ?? "";
    const running = this.calls.running();
    const [text, tooltip, command] =
      questions > 0
        ? [`$(shield) ${plural(questions, "question")}`, `${this.host.name} asks: ${short(asked, 80)}`, "acpCoder.answer"]
        : this.host.problem !== null
          ? ["$(warning) Agent", this.host.problem.title, "acpCoder.openChat"]
          : this.host.all.some((session) => session.running)
            ? [
                `$(loading~spin) ${running.length === 0 ? "Agent" : plural(running.length, "tool")}`,
                running.map((record) => short(record.title, 80)).join("\n") || `${this.host.name} is working`,
                "acpCoder.toolCalls.focus",
              ]
            : [this.host.status === "starting" ? "$(loading~spin) Agent" : "$(hubot) Agent", `acp-coder: ${this.host.status}`, "acpCoder.openChat"];
    this.item.text = text;
    this.item.tooltip = tooltip;
    this.item.command = command;
    this.item.backgroundColor = questions > 0 ? new vscode.ThemeColor("statusBarItem.warningBackground") : undefined;
    this.item.accessibilityInformation = { label: `acp-coder: ${tooltip}`, role: "button" };
  }
}
