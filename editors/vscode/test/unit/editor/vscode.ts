/** As much of the module `vscode` as the tests need: what it tells and is told is in their hand. */
import { vi } from "vitest";

type Listener = (event: unknown) => void;

/** What listens to each of VS Code's events. */
export const listeners = new Map<string, Listener[]>();

export function fire(name: string, event: unknown = {}): void {
  for (const listener of listeners.get(name) ?? []) {
    listener(event);
  }
}

function on(name: string): (listener: Listener) => Disposable {
  return (listener) => {
    listeners.set(name, [...(listeners.get(name) ?? []), listener]);
    return new Disposable(() => {
      listeners.set(name, (listeners.get(name) ?? []).filter((one) => one !== listener));
    });
  };
}

class Disposable {
  constructor(readonly dispose: () => void) {}
  static from(...all: readonly Disposable[]): Disposable {
    return new Disposable(() => {
      for (const one of all) {
        one.dispose();
      }
    });
  }
}

class EventEmitter {
  readonly event = (): Disposable => new Disposable(() => undefined);
  readonly fire = (): void => undefined;
  readonly dispose = (): void => undefined;
}

class Kind {
  append(): this {
    return this;
  }
}

export class Range {
  constructor(
    readonly line: number,
    readonly character: number,
    readonly endLine: number,
    readonly endCharacter: number,
  ) {}
  get start(): { line: number; character: number } {
    return { line: this.line, character: this.character };
  }
  get end(): { line: number; character: number } {
    return { line: this.endLine, character: this.endCharacter };
  }
}

export class Uri {
  constructor(
    readonly scheme: string,
    readonly path: string,
  ) {}
  get fsPath(): string {
    return this.path;
  }
  static file(path: string): Uri {
    return new Uri("file", path);
  }
  static parse(text: string): Uri {
    return Uri.file(text.replace(/^file:\/\//u, ""));
  }
  toString(): string {
    return `${this.scheme}://${this.path}`;
  }
}

class Tab {
  readonly input = undefined;
}

/** The notifications that are open, by their words. */
export const notifications = new Set<string>();
/** What the user was told, in order. */
export const told: string[] = [];
/** What the extension for git, and commands of VS Code, answer. */
export const answers: { git?: unknown; command?: unknown } = {};

const say = (words: string): Promise<undefined> => {
  told.push(words);
  return Promise.resolve(undefined);
};

interface Window {
  state: { focused: boolean };
  activeTextEditor: unknown;
  visibleTextEditors: unknown[];
  activeColorTheme: { kind: number };
  showInputBox: () => Promise<string | undefined>;
}

export const window: Window & Record<string, unknown> = {
  state: { focused: true },
  activeTextEditor: undefined,
  visibleTextEditors: [],
  activeColorTheme: { kind: 2 },
  showInputBox: () => Promise.resolve(undefined),
  showInformationMessage: say,
  showWarningMessage: say,
  showTextDocument: () => Promise.resolve(undefined),
  createTreeView: () => ({ visible: false, onDidChangeVisibility: on("treeVisibility"), dispose: () => undefined }),
  createTextEditorDecorationType: (options: object) => ({ ...options, dispose: () => undefined }),
  withProgress: async ({ title }: { title: string }, run: (progress: { report: () => void }) => Promise<unknown>) => {
    notifications.add(title);
    await run({ report: () => undefined });
    notifications.delete(title);
  },
  tabGroups: { all: [], activeTabGroup: { activeTab: new Tab() }, onDidChangeTabs: on("tabs"), close: () => Promise.resolve() },
  ...Object.fromEntries(
    ["WindowState", "ActiveTextEditor", "VisibleTextEditors", "TextEditorVisibleRanges", "ActiveColorTheme"].map((name) => [`onDidChange${name}`, on(name)]),
  ),
  onDidStartTerminalShellExecution: on("shell"),
};

export const vscode = {
  window,
  workspace: {
    textDocuments: [],
    asRelativePath: ({ path }: Uri) => path.slice(1),
    openTextDocument: () => Promise.resolve({ getText: () => "line\n" }),
    findFiles: () => Promise.resolve([]),
    onDidChangeTextDocument: on("document"),
    onDidSaveTextDocument: on("saved"),
    registerTextDocumentContentProvider: () => new Disposable(() => undefined),
  },
  languages: { registerCodeActionsProvider: () => new Disposable(() => undefined), getDiagnostics: () => [] },
  commands: { executeCommand: vi.fn(() => (answers.command instanceof Error ? Promise.reject(answers.command) : Promise.resolve(answers.command))) },
  extensions: { getExtension: () => answers.git },
  CodeActionKind: { QuickFix: new Kind(), RefactorRewrite: new Kind() },
  ColorThemeKind: { Light: 1, Dark: 2, HighContrast: 3, HighContrastLight: 4 },
  OverviewRulerLane: { Right: 4 },
  ProgressLocation: { Notification: 15 },
  ViewColumn: { Active: -1 },
  ThemeColor: class {
    constructor(readonly id: string) {}
  },
  MarkdownString: class {
    value = "";
    appendMarkdown(text: string): this {
      this.value += text;
      return this;
    }
    appendCodeblock(text: string): this {
      this.value += text;
      return this;
    }
  },
  TabInputText: Tab,
  TabInputTextDiff: class extends Tab {},
  Disposable,
  EventEmitter,
  Range,
  Uri,
};
