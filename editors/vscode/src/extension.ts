import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { homedir } from "node:os";
import * as vscode from "vscode";
import { FirstStart } from "./agent/firstStart.js";
import { Forms } from "./agent/forms.js";
import { AgentHost } from "./agent/host.js";
import { problems } from "./agent/problems.js";
import { Program } from "./agent/program.js";
import { type KeptMemory, Undo } from "./agent/undo.js";
import { SessionsTree } from "./chat/sessionsTree.js";
import { ChatView } from "./chat/view.js";
import { registerCommands } from "./commands.js";
import { Marks } from "./core/marks.js";
import { commandOf } from "./core/asked.js";
import { ToolCalls } from "./core/toolCalls.js";
import { messageOf } from "./core/words.js";
import { Diffs } from "./editor/diffs.js";
import { Asking } from "./editor/asking.js";
import { Files } from "./editor/files.js";
import { LanguageServers, LSP_METHODS, LSP_NOTIFICATIONS } from "./editor/languageServers.js";
import { Outputs } from "./editor/outputs.js";
import { Plans } from "./editor/plans.js";
import { Previews } from "./editor/previews.js";
import { Questions } from "./editor/questions.js";
import { Restoring } from "./editor/restoring.js";
import { Terminals } from "./editor/terminals.js";
import { TypedCommands } from "./editor/typedCommands.js";
import { SECTION, settings } from "./settings.js";
import { ChangesTree } from "./status/changes.js";
import { Findings } from "./status/findings.js";
import { FollowMode } from "./status/follow.js";
import { Hunks } from "./status/hunks.js";
import { InlineStatus } from "./status/inline.js";
import { CallLenses } from "./status/lenses.js";
import { StatusBar } from "./status/statusBar.js";
import { CallTree } from "./status/tree.js";
import { Typing } from "./status/typing.js";
import { Trace } from "./trace.js";

const LAST_SESSION = "acpCoder.lastSession";
/** The sessions in which a turn runs: what of them is found at the next start was interrupted. */
const RUNNING = "acpCoder.running";
const KEPT = "acpCoder.kept";
/** Sessions of which it is stored what the user keeps, the newest first, and how many changes of each. */
const KEPT_SESSIONS = 20;
const MOST_KEPT = 2_000;

let running: AgentHost | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const begun = performance.now();
  const log = vscode.window.createOutputChannel("acp-coder", { log: true });
  const trace = new Trace(settings.traceWire);
  const calls = new ToolCalls(Date.now, (error) => {
    log.error(messageOf(error));
  });
  const terminals = new Terminals(environment, () => ({ keep: settings.keepTerminals(), reveal: settings.revealTerminals() }));
  const files = new Files();
  const forms = new Forms();
  const languageServers = new LanguageServers(() => host);
  const program = new Program({
    connect: async () => (await import("./agent/connection.js")).connect,
    places: () => ({ isExecutable, environment: process.env, platform: process.platform, folders: folders(), home: homedir() }),
    settings: () => ({ uvx: settings.useUvx(), command: settings.command(), args: settings.args(), env: settings.environment(), startTimeout: settings.startTimeout() }),
    capabilities: {
      fs: { readTextFile: true, writeTextFile: true },
      terminal: true,
      auth: { terminal: true },
      elicitation: { form: {}, url: {} },
      session: { notices: {}, compaction: {}, configOptions: { boolean: {} } },
      _meta: { lsp: { methods: [...LSP_METHODS], notifications: [...LSP_NOTIFICATIONS] } },
    },
    lspMethods: LSP_METHODS,
    version: (context.extension.packageJSON as { version: string }).version,
    environment,
    onWire: trace.message,
    log: (text) => {
      log.info(text.trimEnd());
    },
    client: {
      readTextFile: (params) => files.read(params),
      writeTextFile: (params) => files.write(params),
      createTerminal: (params) => terminals.create(params),
      terminalOutput: (params) => terminals.output(params),
      waitForTerminalExit: (params, signal) => terminals.waitForExit(params, signal),
      killTerminal: (params) => terminals.kill(params),
      releaseTerminal: (params) => terminals.release(params),
      elicit: (params, signal) => forms.elicit(params, signal),
      elicitationComplete: (id) => {
        forms.complete(id);
      },
      languageServer: (method, params) => languageServers.answer(method, params),
    },
  });
  const host: AgentHost = new AgentHost({
    calls,
    start: (side) => program.start(side),
    folders: () => {
      const [first = homedir(), ...more] = folders();
      return [first, ...more];
    },
    problems,
    log: (text) => {
      log.info(text.trimEnd());
    },
  });
  running = host;

  const marks = new Marks();
  const undo = new Undo(host, calls, (text) => {
    log.info(text);
  });
  const firstStart = new FirstStart(host, program);
  const typedCommands = new TypedCommands();
  undo.reviews = true;
  undo.memory = keptIn(context.workspaceState);
  const hunks = new Hunks(undo);
  const chat = new ChatView(context.extensionUri, host, calls, terminals, undo, forms, firstStart, typedCommands, program);
  const asking = new Asking(host, chat);
  const previews = new Previews();
  const restoring = new Restoring(host, undo, previews, chat);
  const changes = new ChangesTree(host, undo, previews, restoring);
  const diffs = new Diffs(calls);
  const outputs = new Outputs(calls, terminals);
  const contexts = new Contexts();
  const typing = new Typing();
  const questions = new Questions(host, calls, diffs, chat, settings.openDiffs, typing, forms);
  const plans = new Plans(host, calls, settings.openDiffs, typing);
  const inline = new InlineStatus(calls, marks, vscode.Uri.joinPath(context.extensionUri, "media"), () => ({
    enabled: settings.inline(),
    fadeAfter: settings.fadeAfter(),
  }));
  const lenses = new CallLenses(calls, marks, () => settings.inline() && settings.codeLens());
  const follow = new FollowMode(calls, settings.followMode, (sessionId) => host.active?.id === sessionId, typing);
  const parts = { host, program, asking, firstStart, marks, hunks, calls, chat, diffs, outputs, questions, plans, restoring, changes, terminals, inline, lenses, trace, log };
  context.subscriptions.push(
    log,
    trace,
    terminals,
    languageServers,
    undo,
    asking,
    typedCommands,
    hunks,
    previews,
    changes,
    chat,
    diffs,
    outputs,
    questions,
    plans,
    inline,
    lenses,
    follow,
    typing,
    new CallTree(calls, host),
    new Findings(calls),
    new SessionsTree(host),
    new StatusBar(calls, host, forms),
    registerCommands(parts),
    new vscode.Disposable(
      calls.changed.on(({ record }) => {
        for (const content of record.content) {
          if (content.type === "terminal") {
            terminals.name(content.terminalId, record.title, commandOf(record.rawInput) || record.title);
          }
        }
      }),
    ),
    new vscode.Disposable(
      undo.undone.on((paths) => {
        const changed = new Set(paths);
        inline.clear((record) => record.locations.some(({ path }) => changed.has(path)));
        lenses.refresh();
      }),
    ),
    new vscode.Disposable(
      undo.changed.on(() => {
        contexts.update(host, undo);
      }),
    ),
    new vscode.Disposable(
      host.changed.on((change) => {
        if (change.kind === "active") {
          remember(context, host.active);
        } else if (change.kind === "agent" && host.running === undefined) {
          terminals.endAll();
        } else if (change.kind === "session" && change.change.reset) {
          remember(context, host.active);
          inline.clear((record) => record.sessionId === change.session.id);
          resumed(context, change.session);
        } else if (change.kind === "session" && change.change.facts.has("running")) {
          remember(context, host.active);
          if (!change.session.working && host.running !== undefined && change.session.queued.length === 0) {
            asking.done(change.session.title);
          }
          if (host.running !== undefined) {
            noteRunning(context, change.session.id, change.session.running);
          }
          onRunning(change.session, inline, lenses);
        }
        contexts.update(host, undo);
      }),
    ),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration(`${SECTION}.inlineStatus`)) {
        inline.refresh();
        lenses.refresh();
      }
      if (AGENT_SETTINGS.some((name) => event.affectsConfiguration(`${SECTION}.${name}`))) {
        onAgentSettings(host).catch((error: unknown) => {
          log.error(messageOf(error));
        });
      }
    }),
  );
  context.subscriptions.push(
    // The folders of a workspace file may be known only a moment after the window opens.
    vscode.workspace.onDidChangeWorkspaceFolders(({ added }) => {
      if (added.length > 0 && host.status === "failed") {
        begin(context, host).catch((error: unknown) => {
          log.error(messageOf(error));
        });
      }
    }),
  );
  chat.onVisibility = () => {
    questions.notifyUnseen();
    asking.look();
  };
  chat.onOpened = () => {
    begin(context, host).catch((error: unknown) => {
      log.error(messageOf(error));
    });
  };
  log.info(`Active after ${(performance.now() - begun).toFixed(1)} ms`);
}

export async function deactivate(): Promise<void> {
  await running?.stop();
}

/** A new prompt removes the results of earlier ones; its session's queue is handled elsewhere. */
function onRunning(session: { readonly id: string; readonly running: boolean; readonly stopping: boolean; readonly turn: number }, inline: InlineStatus, lenses: CallLenses): void {
  if (session.running && !session.stopping) {
    inline.clear((record) => record.sessionId === session.id && record.turn < session.turn);
    lenses.refresh();
  }
}

/** The agent, with the session that was active before the window was closed or reloaded. */
async function begin(context: vscode.ExtensionContext, host: AgentHost): Promise<void> {
  await host.ready(settings.restoreSession() ? context.workspaceState.get<string>(LAST_SESSION) : undefined);
}

/** The settings that decide which program runs and how. */
const AGENT_SETTINGS = ["command", "arguments", "environment", "useUvx"];

/** Retries an agent that could not be started; a running one continues until the user agrees to replace it. */
async function onAgentSettings(host: AgentHost): Promise<void> {
  if (host.status === "failed") {
    await host.restart();
  } else if (host.running !== undefined) {
    const restart = "Restart agent";
    const chosen = await vscode.window.showInformationMessage("The agent's settings take effect when it is restarted.", restart);
    if (chosen === restart) {
      await host.restart();
    }
  }
}

/** A session without a prompt is not restored: a new one starts with the current settings. */
function remember(context: vscode.ExtensionContext, session: { readonly id: string; readonly turn: number } | undefined): void {
  if (session !== undefined && session.turn > 0) {
    context.workspaceState.update(LAST_SESSION, session.id).then(undefined, () => undefined);
  }
}

function noteRunning(context: vscode.ExtensionContext, id: string, runs: boolean): void {
  const others = context.workspaceState.get<readonly string[]>(RUNNING, []).filter((other) => other !== id);
  context.workspaceState.update(RUNNING, runs ? [...others, id] : others).then(undefined, () => undefined);
}

/** What the user keeps of the changes of the sessions of this workspace. */
function keptIn(state: vscode.Memento): KeptMemory {
  const all = (): readonly (readonly [string, readonly string[]])[] => state.get(KEPT, []);
  return {
    read: (id) => all().find(([session]) => session === id)?.[1] ?? [],
    write: (id, keys) => {
      const others = all().filter(([session]) => session !== id);
      state.update(KEPT, [[id, keys.slice(-MOST_KEPT)], ...others].slice(0, KEPT_SESSIONS)).then(undefined, () => undefined);
    },
  };
}

/** A session that was loaded: whether its turn was cut off, with the window or the agent. */
function resumed(context: vscode.ExtensionContext, session: { readonly id: string; readonly working: boolean; interrupted(): void }): void {
  if (context.workspaceState.get<readonly string[]>(RUNNING, []).includes(session.id) && !session.working) {
    noteRunning(context, session.id, false);
    session.interrupted();
  }
}

/** Context for menus; sent to VS Code when it changes, not with every word of an answer. */
class Contexts {
  private readonly told = new Map<string, boolean>();

  update(host: AgentHost, undo: Undo): void {
    const { list, delete: remove, resume } = host.capabilities.sessionCapabilities ?? {};
    const values = {
      running: host.all.some((session) => session.running),
      isOwn: host.isOwn,
      canList: (list ?? null) !== null,
      canDelete: (remove ?? null) !== null,
      canResume: (resume ?? null) !== null,
      canRedo: undo.now.checkpoints.redo && host.active?.running === false,
    };
    for (const [name, value] of Object.entries(values)) {
      if (this.told.get(name) !== value) {
        this.told.set(name, value);
        vscode.commands.executeCommand("setContext", `${SECTION}.${name}`, value).then(undefined, () => undefined);
      }
    }
  }
}

function folders(): string[] {
  return (vscode.workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === "file").map(({ uri }) => uri.fsPath);
}

/** The user's environment, without what VS Code sets for its own processes. */
function environment(): Record<string, string> {
  const entries = Object.entries(process.env).filter((entry): entry is [string, string] => entry[1] !== undefined && !/^(?:ELECTRON_|VSCODE_)/u.test(entry[0]));
  return Object.fromEntries(entries);
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
