import type * as acp from "@agentclientprotocol/sdk";
import * as vscode from "vscode";
import type { FirstStart } from "./agent/firstStart.js";
import type { AgentHost } from "./agent/host.js";
import type { Program } from "./agent/program.js";
import type { ChatView } from "./chat/view.js";
import { selectionAttachment } from "./chat/mentions.js";
import type { Marks } from "./core/marks.js";
import { ago } from "./core/words.js";
import type { CallRecord, ToolCalls } from "./core/toolCalls.js";
import { messageOf, plain } from "./core/words.js";
import { AgentPanels } from "./editor/agentPanels.js";
import type { Asking } from "./editor/asking.js";
import { mayRestart } from "./editor/interrupting.js";
import { pickModel } from "./editor/modelPicker.js";
import type { Diffs } from "./editor/diffs.js";
import type { Outputs } from "./editor/outputs.js";
import type { Plans } from "./editor/plans.js";
import type { Questions } from "./editor/questions.js";
import type { Restoring } from "./editor/restoring.js";
import type { Terminals } from "./editor/terminals.js";
import type { ChangeRow, ChangesTree } from "./status/changes.js";
import type { InlineStatus } from "./status/inline.js";
import type { Hunks } from "./status/hunks.js";
import type { CallLenses } from "./status/lenses.js";
import { reveal } from "./status/follow.js";
import { SECTION, set, settings } from "./settings.js";
import type { Trace } from "./trace.js";

export interface Parts {
  readonly host: AgentHost;
  readonly program: Program;
  readonly firstStart: FirstStart;
  readonly calls: ToolCalls;
  readonly chat: ChatView;
  readonly diffs: Diffs;
  readonly outputs: Outputs;
  readonly plans: Plans;
  readonly restoring: Restoring;
  readonly changes: ChangesTree;
  readonly questions: Questions;
  readonly terminals: Terminals;
  readonly inline: InlineStatus;
  readonly lenses: CallLenses;
  readonly marks: Marks;
  readonly asking: Asking;
  readonly hunks: Hunks;
  readonly trace: Trace;
  readonly log: vscode.LogOutputChannel;
}

/** What menus, lenses and the chat pass to identify a tool call. */
interface CallRef {
  readonly sessionId?: string;
  readonly toolCallId: string;
  readonly index?: number;
}

type Handler = (...args: unknown[]) => unknown;

export function registerCommands(parts: Parts): vscode.Disposable {
  const { host, chat, diffs, outputs, questions, restoring, changes, terminals, trace, log } = parts;
  const panels = new AgentPanels(host, parts.program, () => chat.show());
  const handlers: Record<string, Handler> = {
    openChat: () => chat.show(),
    newSession: async () => {
      await host.newSession();
      await chat.show();
    },
    openSession: (info) => openSession(parts, info, "load"),
    resumeSession: (info) => openSession(parts, info, "resume"),
    deleteSession: (info) => deleteSession(host, info),
    stop: (call) => {
      stop(host, call);
    },
    answer: () => questions.pick(),
    answerNotified: (sessionId, id, optionId) => questions.answerNotified(sessionId, id, optionId),
    allowOnce: () => questions.answerWith("allow_once"),
    rejectOnce: () => questions.answerWith("reject_once"),
    answerPlan: (plan, optionId) => {
      if (plan instanceof vscode.Uri && typeof optionId === "string") {
        parts.plans.answer(plan, optionId);
      }
    },
    restart: () => host.restart(),
    login: (method) => login(parts, method),
    locate: () => locate(host),
    useUvx: async () => {
      await set("useUvx", true);
      await host.restart();
    },
    // In a remote window, the agent's program is a setting of the remote machine.
    openSettings: () =>
      vscode.env.remoteName === undefined
        ? vscode.commands.executeCommand("workbench.action.openSettings", `@ext:${EXTENSION_ID}`)
        : vscode.commands.executeCommand("workbench.action.openRemoteSettings", { query: `@ext:${EXTENSION_ID}` }),
    openFolder: () => vscode.commands.executeCommand("workbench.action.files.openFolder"),
    openWalkthrough: () => vscode.commands.executeCommand("workbench.action.openWalkthrough", `${EXTENSION_ID}#acpCoder.start`, false),
    showLog: () => {
      log.show(true);
    },
    showTrace: () => {
      trace.show();
    },
    toggleTrace: () => toggle("trace.wire", !settings.traceWire(), "Wire tracing"),
    toggleFollow: () => toggle("followMode", !settings.followMode(), "Follow mode"),
    clearInline: () => {
      parts.inline.clear();
      parts.lenses.refresh();
    },
    openCall: async (call) => {
      const record = find(parts, call);
      const place = record?.locations.at(-1);
      if (record !== undefined && !(place !== undefined && (await reveal(place.path, place.line ?? undefined)))) {
        await outputs.open(record);
      }
    },
    openLocation: async (path, line) => {
      if (typeof path === "string" && !(await reveal(path, typeof line === "number" ? line : undefined))) {
        await vscode.window.showWarningMessage(plain(`${path} no longer exists.`));
      }
    },
    showOutput: async (call) => {
      const record = find(parts, call);
      if (record !== undefined) {
        await outputs.open(record);
      }
    },
    showDiff: async (call) => {
      const record = find(parts, call);
      const { index } = (call ?? {}) as Partial<CallRef>;
      const one = record !== undefined && index !== undefined && (await diffs.open(record, index));
      const shown = one || (record !== undefined && (await diffs.openAll(record)));
      if (!shown) {
        await vscode.window.showInformationMessage("This tool call changes no file.");
      }
    },
    showTerminal: async (target) => {
      const id = typeof target === "string" ? target : find(parts, target)?.content.find((content) => content.type === "terminal")?.terminalId;
      if (id === undefined || !terminals.show(id)) {
        await vscode.window.showInformationMessage("This terminal no longer exists; its text is in the tool call's output.");
      }
    },
    showInChat: async (call) => {
      const record = find(parts, call);
      if (record !== undefined) {
        await chat.reveal(record.toolCallId);
      }
    },
    restore: async (prompt) => {
      if (typeof prompt === "number") {
        await restoring.restore(prompt);
      }
    },
    fork: async (prompt) => {
      if (typeof prompt === "number") {
        await restoring.fork(prompt);
      }
    },
    redo: () => restoring.redo(),
    openChange: (row) => changes.open(row),
    keepChange: (row) => {
      changes.keep(row);
    },
    revertChange: (row) => changes.revert(row),
    reviewChanges: (act, path) => changes.act(typeof act === "string" ? act : "review", typeof path === "string" ? path : undefined),
    keepHunk: (path, id) => onHunk(parts, path, id, (row) => {
      changes.keep(row);
    }),
    undoHunk: (path, id) => onHunk(parts, path, id, (row) => changes.revert(row)),
    showHunk: (path, id) => onHunk(parts, path, id, (row) => changes.open(row)),
    ask: async (prompt, uri, range) => {
      if (typeof prompt === "string" && uri instanceof vscode.Uri && range instanceof vscode.Range) {
        await vscode.commands.executeCommand("acpCoder.chat.focus");
        await parts.asking.ask(prompt, uri, range);
      }
    },
    editSelection: () => parts.asking.edit(),
    insertCode: async (text) => {
      if (typeof text === "string") {
        await parts.asking.insert(text);
      }
    },
    renameSession: (info) => renameSession(parts, info),
    exportSession: (info) => exportSession(parts, info),
    permissions: () => needOwn(host).then(() => panels.permissions()),
    mcpServers: () => needOwn(host).then(() => panels.servers()),
    rules: () => needOwn(host).then(() => panels.rules()),
    followOff: () => set("followMode", false),
    nextChange: () => parts.hunks.step(1),
    previousChange: () => parts.hunks.step(-1),
    answerCall: (call, kind) => questions.answerCall(call, kind),
    openLink: (href) => openLink(href),
    addSelection: async () => {
      const selection = selectionAttachment();
      await (selection === undefined
        ? vscode.window.showInformationMessage("Select something in an editor first.")
        : chat.compose("", [selection]));
    },
    addFile: async (target) => {
      const uri = target instanceof vscode.Uri ? target : vscode.window.activeTextEditor?.document.uri;
      await (uri === undefined
        ? vscode.window.showInformationMessage("Open a file first.")
        : chat.compose("", [{ kind: "file", uri: uri.toString(), label: vscode.workspace.asRelativePath(uri) }]));
    },
    fixProblems: () => chat.compose("Fix the problems in this folder. ", [{ kind: "problems", label: "problems" }]),
    refreshSessions: () => host.start().then(() => {
      host.changed.fire({ kind: "sessions" });
    }),
  };
  return vscode.Disposable.from(
    ...Object.entries(handlers).map(([name, handler]) =>
      vscode.commands.registerCommand(`${SECTION}.${name}`, async (...args: unknown[]) => {
        try {
          return await handler(...args);
        } catch (error) {
          log.error(`${name}: ${messageOf(error)}`);
          // A problem with the agent is shown in the chat, with what can be done; everything else here.
          if (host.problem !== null) {
            await chat.show();
          } else {
            await vscode.window.showErrorMessage(plain(messageOf(error)));
          }
          return undefined;
        }
      }),
    ),
  );
}

async function onHunk({ hunks }: Parts, path: unknown, id: unknown, run: (row: ChangeRow) => unknown): Promise<void> {
  const row = hunks.row(path, id);
  await (row === undefined ? vscode.window.showInformationMessage("There is no change of the agent's here.") : run(row));
}

export const EXTENSION_ID = "acp-coder.acp-coder";
/** Milliseconds that the answer to a toggle is shown. */
const TOLD = 3_000;

async function toggle(setting: string, on: boolean, name: string): Promise<void> {
  await set(setting, on);
  vscode.window.setStatusBarMessage(`${name} is ${on ? "on" : "off"}`, TOLD);
}

function find({ host, calls, marks }: Parts, call: unknown): CallRecord | undefined {
  const { uri, lineNumber } = (call ?? {}) as { uri?: unknown; lineNumber?: unknown };
  if (uri instanceof vscode.Uri && typeof lineNumber === "number") {
    // The menu of a line number: the newest call there, else the newest in the file.
    const here = marks.of(uri.fsPath);
    return (here.filter(({ line }) => line === lineNumber - 1).at(-1) ?? here.at(-1))?.record;
  }
  const { sessionId, toolCallId } = (call ?? {}) as Partial<CallRef>;
  const session = sessionId ?? host.active?.id;
  return session === undefined || toolCallId === undefined ? undefined : calls.get(session, toolCallId);
}

function stop(host: AgentHost, call: unknown): void {
  const { sessionId } = (call ?? {}) as Partial<CallRef>;
  const sessions = sessionId === undefined ? host.all : host.all.filter(({ id }) => id === sessionId);
  for (const session of sessions) {
    session.stop();
  }
}

function idOf(info: unknown): { id: string; cwd: string | undefined; title: string } | undefined {
  const { sessionId, cwd, title } = (info ?? {}) as { sessionId?: unknown; cwd?: unknown; title?: unknown };
  return typeof sessionId === "string"
    ? { id: sessionId, cwd: typeof cwd === "string" ? cwd : undefined, title: typeof title === "string" ? title : "" }
    : undefined;
}

async function chosen(host: AgentHost, info: unknown, placeHolder: string): ReturnType<typeof choose> {
  return idOf(info) ?? (await choose(host, placeHolder));
}

async function choose(host: AgentHost, placeHolder: string): Promise<{ id: string; cwd: string | undefined; title: string } | undefined> {
  const sessions = await host.listSessions();
  const items = sessions.map((info) => ({ label: info.title ?? "Untitled", description: ago(info.updatedAt ?? undefined), info }));
  const picked = await vscode.window.showQuickPick(items, { placeHolder: items.length === 0 ? "There are no sessions in this folder" : placeHolder });
  return idOf(picked?.info);
}

async function openSession({ host, chat }: Parts, info: unknown, how: "load" | "resume"): Promise<void> {
  const target = await chosen(host, info, "Which session?");
  if (target !== undefined) {
    await host.openSession(target.id, how, target.cwd);
    await chat.show();
  }
}

/** Starts the agent if need be. Throws an Error for one whose program has no such commands. */
async function needOwn(host: AgentHost): Promise<void> {
  await host.start();
  if (!host.isOwn) {
    throw new Error(`${host.name} cannot do this.`);
  }
}

async function renameSession({ host, program }: Parts, info: unknown): Promise<void> {
  await needOwn(host);
  const target = await chosen(host, info, "Which session do you want to rename?");
  const title = target && (await vscode.window.showInputBox({ title: "Rename the session", value: target.title }));
  if (target === undefined || !title) {
    return;
  }
  const open = host.session(target.id);
  if (open !== undefined && !open.working) {
    open.prompt(`/rename ${title}`, [{ type: "text", text: `/rename ${title}` }]);
  } else {
    await program.output(["sessions", "rename", target.id, "--", title]);
    host.changed.fire({ kind: "sessions" });
  }
}

/** The conversation as a text, to be saved or copied. */
async function exportSession({ host, program }: Parts, info: unknown): Promise<void> {
  await needOwn(host);
  const target = await chosen(host, info, "Which session do you want to export?");
  if (target !== undefined) {
    const content = await program.output(["sessions", "show", target.id]);
    await vscode.window.showTextDocument(await vscode.workspace.openTextDocument({ language: "markdown", content }));
  }
}

async function deleteSession(host: AgentHost, info: unknown): Promise<void> {
  const target = await chosen(host, info, "Which session do you want to delete?");
  if (target === undefined) {
    return;
  }
  const answer = await vscode.window.showWarningMessage(plain(`Delete the session "${target.title || "Untitled"}"?`), { modal: true, detail: "The agent deletes it permanently." }, "Delete");
  if (answer === "Delete") {
    await host.deleteSession(target.id);
  }
}

/** The agent's program, chosen among the files of this machine. */
async function locate(host: AgentHost): Promise<void> {
  const [file] = (await vscode.window.showOpenDialog({ title: "The agent's program", openLabel: "Use it" })) ?? [];
  if (file !== undefined && (await mayRestart(host))) {
    await set("command", file.fsPath);
    await host.restart();
  }
}

/** A provider, its key, typed into a password box, and its model. */
async function loginByKey(host: AgentHost, firstStart: FirstStart): Promise<void> {
  const providers = await firstStart.providers();
  const items = providers.map(({ id, detail, hasKey }) => ({ label: id, description: hasKey ? "has a key" : "", detail }));
  const provider = (await vscode.window.showQuickPick(items, { title: "Log in", placeHolder: "Whose API key?", matchOnDetail: true }))?.label;
  const key = provider && (await vscode.window.showInputBox({ title: `API key for ${provider}`, password: true, ignoreFocusOut: true, prompt: "It is stored in the keyring or a private file, not in the settings." }));
  if (provider && key) {
    await firstStart.store(provider, key.trim());
    // Where the models are not listed, or none is picked, the provider's first one is used.
    const models = await firstStart.models(provider).catch(() => undefined);
    const model = (models && models.names.length > 0 && (await pickModel(models))) || "";
    if (await mayRestart(host)) {
      await firstStart.begin(provider, model);
    }
  }
}

/** By the agent itself, or in a terminal with the program's own login. */
async function login({ host, program, firstStart }: Parts, methodId: unknown): Promise<void> {
  await host.start();
  if (firstStart.serves(methodId)) {
    await loginByKey(host, firstStart);
    return;
  }
  const methods = host.authMethods;
  const picked =
    typeof methodId === "string"
      ? methods.find(({ id }) => id === methodId)
      : (await vscode.window.showQuickPick(methods.map((method) => ({ label: method.name, detail: method.description ?? "", method })), { placeHolder: "How do you want to log in?" }))?.method;
  if (picked === undefined) {
    return;
  }
  if (!isTerminal(picked)) {
    try {
      await host.login(picked.id);
    } catch (error) {
      // The card says what is needed already: that this did not help is said here.
      await vscode.window.showWarningMessage(plain(messageOf(error)));
      return;
    }
    await host.ready();
    return;
  }
  const { found } = program;
  if (found === undefined) {
    return;
  }
  const terminal = vscode.window.createTerminal({
    name: picked.name,
    shellPath: found.command,
    shellArgs: [...found.args, ...(picked.args ?? [])],
    env: { ...settings.environment(), ...picked.env },
  });
  terminal.show();
  const closed = new Promise<void>((resolve) => {
    const listener = vscode.window.onDidCloseTerminal((other) => {
      if (other === terminal) {
        listener.dispose();
        resolve();
      }
    });
  });
  await closed;
  if (terminal.exitStatus?.code === 0 && (await mayRestart(host))) {
    await host.restart();
  }
}

function isTerminal(method: acp.AuthMethod): method is acp.AuthMethodTerminal & { type: "terminal" } {
  return (method as { type?: unknown }).type === "terminal";
}

function decoded(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path; // A file's name may contain a percent sign.
  }
}

/** Links in messages: web pages open outside, files in the editor. Nothing else is opened. */
async function openLink(href: unknown): Promise<void> {
  if (typeof href !== "string") {
    return;
  }
  if (/^(?:https?|mailto):/iu.test(href)) {
    await vscode.env.openExternal(vscode.Uri.parse(href));
    return;
  }
  const [address = "", fragment = ""] = href.split("#", 2);
  const place = /^file:/iu.test(address) ? vscode.Uri.parse(address).fsPath : decoded(address);
  const [, path = "", suffix] = /^(.*?)(?::(\d+))?(?::\d+)?$/u.exec(place) ?? [];
  const line = Number(suffix ?? /^L(\d+)/u.exec(fragment)?.[1] ?? Number.NaN);
  for (const folder of path.startsWith("/") ? [""] : (vscode.workspace.workspaceFolders ?? []).map(({ uri }) => `${uri.fsPath}/`)) {
    if (await reveal(folder + path, Number.isNaN(line) ? undefined : line)) {
      return;
    }
  }
  await vscode.window.showWarningMessage(plain(`${path} does not exist.`));
}
