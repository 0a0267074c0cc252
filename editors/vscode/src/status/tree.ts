import * as vscode from "vscode";
import type { AgentHost } from "../agent/host.js";
import type { CallKind, CallRecord, ToolCalls } from "../core/toolCalls.js";
import { isOver } from "../core/toolCalls.js";
import { duration, plural, short } from "../core/words.js";

type Node = { readonly type: "turn"; readonly sessionId: string; readonly turn: number } | { readonly type: "call"; readonly sessionId: string; readonly toolCallId: string };

const REFRESH = 80;
const ICONS: Readonly<Record<CallKind, string>> = {
  read: "eye",
  edit: "edit",
  delete: "trash",
  move: "file-symlink-file",
  search: "search",
  execute: "terminal",
  think: "lightbulb",
  fetch: "globe",
  switch_mode: "arrow-swap",
  other: "tools",
};

/** The tool calls of the active session: a branch for each prompt, sub-agents' calls below their parent's. */
export class CallTree implements vscode.TreeDataProvider<Node>, vscode.Disposable {
  private readonly emitter = new vscode.EventEmitter<Node | undefined>();
  readonly onDidChangeTreeData = this.emitter.event;
  private readonly nodes = new Map<string, Node>();
  private readonly view: vscode.TreeView<Node>;
  private readonly disposables: vscode.Disposable[];
  private changed: Set<Node> | "all" = new Set();
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly calls: ToolCalls,
    private readonly host: AgentHost,
  ) {
    this.view = vscode.window.createTreeView("acpCoder.toolCalls", { treeDataProvider: this, showCollapseAll: true });
    this.disposables = [
      this.emitter,
      this.view,
      new vscode.Disposable(
        calls.changed.on(({ record, before }) => {
          this.note(record, before === undefined);
        }),
      ),
      new vscode.Disposable(
        host.changed.on((change) => {
          if (change.kind === "active" || (change.kind === "session" && change.change.reset)) {
            this.changed = "all";
            this.refresh();
          }
        }),
      ),
    ];
  }

  dispose(): void {
    clearTimeout(this.timer);
    vscode.Disposable.from(...this.disposables).dispose();
  }

  getTreeItem(node: Node): vscode.TreeItem {
    return node.type === "turn" ? this.turnItem(node) : this.callItem(node);
  }

  getChildren(node?: Node): Node[] {
    const session = this.host.active;
    if (session === undefined) {
      return [];
    }
    const calls = this.calls.list(session.id);
    if (node === undefined) {
      const turns = [...new Set(calls.map(({ turn }) => turn))].sort((left, right) => right - left);
      return turns.map((turn) => this.node({ type: "turn", sessionId: session.id, turn }));
    }
    const children =
      node.type === "turn"
        ? calls.filter((record) => record.turn === node.turn && this.parentOf(record) === undefined)
        : this.calls.children(session.id, node.toolCallId);
    return children.map((record) => this.callNode(record));
  }

  getParent(node: Node): Node | undefined {
    const record = node.type === "call" ? this.calls.get(node.sessionId, node.toolCallId) : undefined;
    if (record === undefined) {
      return undefined;
    }
    const parent = this.parentOf(record);
    return parent === undefined ? this.node({ type: "turn", sessionId: record.sessionId, turn: record.turn }) : this.callNode(parent);
  }

  private parentOf(record: CallRecord): CallRecord | undefined {
    return record.parentId === undefined ? undefined : this.calls.get(record.sessionId, record.parentId);
  }

  private note(record: CallRecord, isNew: boolean): void {
    if (record.sessionId !== this.host.active?.id) {
      return;
    }
    if (this.changed !== "all") {
      if (isNew) {
        // The list that it is added to; a new branch changes the root.
        const parent = this.parentOf(record);
        const turn = this.nodes.get(key({ type: "turn", sessionId: record.sessionId, turn: record.turn }));
        if (parent === undefined && turn === undefined) {
          this.changed = "all";
        } else {
          this.changed.add(parent === undefined ? (turn as Node) : this.callNode(parent));
        }
      } else {
        this.changed.add(this.callNode(record));
      }
    }
    this.refresh();
  }

  private refresh(): void {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      const changed = this.changed;
      this.changed = new Set();
      if (changed === "all" || changed.size > 20) {
        this.emitter.fire(undefined);
      } else {
        for (const node of changed) {
          this.emitter.fire(node);
        }
      }
    }, REFRESH);
  }

  /** VS Code knows a node by its identity: the same object each time. */
  private node(node: Node): Node {
    const known = this.nodes.get(key(node));
    if (known !== undefined) {
      return known;
    }
    this.nodes.set(key(node), node);
    return node;
  }

  private callNode({ sessionId, toolCallId }: CallRecord): Node {
    return this.node({ type: "call", sessionId, toolCallId });
  }

  private turnItem({ sessionId, turn }: Node & { type: "turn" }): vscode.TreeItem {
    const calls = this.calls.list(sessionId).filter((record) => record.turn === turn);
    const latest = this.calls.list(sessionId).at(-1)?.turn === turn;
    const item = new vscode.TreeItem(
      turn === 0 ? "Before the first prompt" : `Prompt ${String(turn)}`,
      latest ? vscode.TreeItemCollapsibleState.Expanded : vscode.TreeItemCollapsibleState.Collapsed,
    );
    item.id = key({ type: "turn", sessionId, turn });
    item.description = plural(calls.length, "call");
    item.contextValue = "turn";
    return item;
  }

  private callItem(node: Node & { type: "call" }): vscode.TreeItem {
    const record = this.calls.get(node.sessionId, node.toolCallId);
    if (record === undefined) {
      return new vscode.TreeItem("");
    }
    const hasChildren = this.calls.children(record.sessionId, record.toolCallId).length > 0;
    const item = new vscode.TreeItem(
      short(record.title, 200),
      hasChildren ? vscode.TreeItemCollapsibleState.Expanded : vscode.TreeItemCollapsibleState.None,
    );
    const over = isOver(record.status);
    const time = over && !record.replayed && record.endedAt !== undefined ? duration(record.endedAt - record.startedAt) : "";
    item.id = key(node);
    item.iconPath = iconOf(record);
    item.description = [STATE[record.status], time].filter((text) => text !== "").join(" ");
    item.tooltip = [record.title, record.name ?? "", record.status.replace("_", " "), time, ...record.locations.map(({ path, line }) => (typeof line === "number" ? `${path}:${String(line)}` : path))]
      .filter((text) => text !== "")
      .join("\n");
    item.accessibilityInformation = { label: `${record.title}, ${record.kind}, ${record.status.replace("_", " ")}${time === "" ? "" : `, ${time}`}` };
    item.contextValue = [
      "call",
      over ? "over" : "running",
      ...(record.locations.length > 0 ? ["location"] : []),
      ...[...new Set(record.content.map(({ type }) => type))],
    ].join(" ");
    item.command = { title: "Open", command: "acpCoder.openCall", arguments: [node] };
    return item;
  }
}

const STATE = { pending: "waiting", in_progress: "", completed: "✓", failed: "✗", cancelled: "stopped" } as const;

function iconOf({ kind, status }: CallRecord): vscode.ThemeIcon {
  switch (status) {
    case "in_progress":
      return new vscode.ThemeIcon("loading~spin", new vscode.ThemeColor("charts.blue"));
    case "completed":
      return new vscode.ThemeIcon(ICONS[kind], new vscode.ThemeColor("testing.iconPassed"));
    case "failed":
      return new vscode.ThemeIcon(ICONS[kind], new vscode.ThemeColor("testing.iconFailed"));
    case "pending":
      return new vscode.ThemeIcon(ICONS[kind], new vscode.ThemeColor("charts.yellow"));
    case "cancelled":
      return new vscode.ThemeIcon(ICONS[kind], new vscode.ThemeColor("disabledForeground"));
  }
}

function key(node: Node): string {
  return node.type === "turn" ? `turn ${node.sessionId} ${String(node.turn)}` : `call ${node.sessionId} ${node.toolCallId}`;
}
