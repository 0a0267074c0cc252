import type * as acp from "@agentclientprotocol/sdk";
import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { StringDecoder } from "node:string_decoder";
import * as vscode from "vscode";
import { REQUEST_CANCELLED, RequestFailure, RESOURCE_NOT_FOUND } from "../agent/link.js";
import { quoted } from "../core/asked.js";
import type { TerminalFacts } from "../core/cards.js";
import { Emitter } from "../core/emitter.js";
import { OutputBuffer } from "../core/outputBuffer.js";
import { messageOf, plainText, short, visible } from "../core/words.js";

const DEFAULT_OUTPUT_BYTES = 1024 * 1024;
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;
const TAIL_CHARS = 4_000;
const TAIL_BYTES = 16_384;
/** Milliseconds from SIGTERM to SIGKILL. */
const KILL_GRACE = 500;
/** Milliseconds to wait for the last output of a command that ended while a child still holds the pipe. */
const DRAIN = 200;
/** Milliseconds to wait for the terminal's tool call: VS Code takes a terminal's name only on creation. */
const NAMING = 300;
/** Text kept for a terminal that VS Code has not opened yet. */
const UNOPENED_CHARS = 1024 * 1024;

/**
 * `terminal/*` in VS Code's own terminals. Each is a pseudoterminal over a child that runs `command` with `args`
 * unchanged, without a shell, in its own process group. Output stays readable after `terminal/release`, until the user
 * closes the terminal or newer ones replace it.
 */
export class Terminals implements vscode.Disposable {
  /** Fires with the id when output arrived or the command ended. */
  readonly changed = new Emitter<string>();
  private readonly live = new Map<string, AgentTerminal>();
  /** Includes released ones, oldest first: a tool card still shows them. */
  private readonly known = new Map<string, AgentTerminal>();

  constructor(
    private readonly environment: () => Readonly<Record<string, string>>,
    private readonly settings: () => { readonly keep: number; readonly reveal: boolean },
  ) {}

  async create(request: acp.CreateTerminalRequest): Promise<acp.CreateTerminalResponse> {
    const id = randomUUID();
    const limit = Math.min(request.outputByteLimit ?? DEFAULT_OUTPUT_BYTES, MAX_OUTPUT_BYTES);
    const env = { ...this.environment(), ...Object.fromEntries((request.env ?? []).map(({ name, value }) => [name, value])) };
    const cwd = request.cwd ?? vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
    const child = await started(request.command, request.args ?? [], cwd, env);
    const terminal = new AgentTerminal(child, new OutputBuffer(limit), [request.command, ...(request.args ?? [])], () => {
      this.changed.fire(id);
    });
    this.live.set(id, terminal);
    this.known.set(id, terminal);
    if (this.settings().reveal) {
      terminal.reveal();
    }
    this.forgetOld();
    return { terminalId: id };
  }

  output({ terminalId }: acp.TerminalOutputRequest): acp.TerminalOutputResponse {
    const terminal = this.find(terminalId);
    const output = terminal.buffer.text();
    return { output, truncated: terminal.buffer.truncated, ...(terminal.exit === undefined ? {} : { exitStatus: terminal.exit }) };
  }

  async waitForExit({ terminalId }: acp.WaitForTerminalExitRequest, signal: AbortSignal): Promise<acp.WaitForTerminalExitResponse> {
    const terminal = this.find(terminalId);
    const aborted = new Promise<never>((_, reject) => {
      signal.addEventListener("abort", () => {
        reject(new RequestFailure(REQUEST_CANCELLED, "cancelled"));
      });
    });
    return await Promise.race([terminal.ended, aborted]);
  }

  kill({ terminalId }: acp.KillTerminalRequest): acp.KillTerminalResponse {
    this.find(terminalId).kill();
    return {};
  }

  release({ terminalId }: acp.ReleaseTerminalRequest): acp.ReleaseTerminalResponse {
    this.find(terminalId).kill();
    this.live.delete(terminalId);
    this.forgetOld();
    return {};
  }

  /** Names the terminal after the tool call that runs in it, and shows the command that this is about. */
  name(terminalId: string, title: string, command: string): void {
    this.known.get(terminalId)?.name(title, command);
  }

  /** False if it no longer exists. */
  show(terminalId: string): boolean {
    return this.known.get(terminalId)?.show() ?? false;
  }

  facts(terminalId: string): TerminalFacts | undefined {
    return this.known.get(terminalId)?.facts();
  }

  text(terminalId: string): string | undefined {
    return this.known.get(terminalId)?.buffer.text();
  }

  /** The agent is gone: what it started is stopped. */
  endAll(): void {
    for (const terminal of this.live.values()) {
      terminal.kill();
    }
    this.live.clear();
    this.forgetOld();
  }

  dispose(): void {
    for (const terminal of this.known.values()) {
      terminal.kill(true);
    }
    this.live.clear();
  }

  private find(terminalId: string): AgentTerminal {
    const terminal = this.live.get(terminalId);
    if (terminal === undefined) {
      throw new RequestFailure(RESOURCE_NOT_FOUND, `there is no terminal ${terminalId}`);
    }
    return terminal;
  }

  private forgetOld(): void {
    const released = [...this.known.keys()].filter((id) => !this.live.has(id));
    for (const id of released.slice(0, Math.max(0, released.length - this.settings().keep))) {
      this.known.get(id)?.close();
      this.known.delete(id);
    }
  }
}

function started(
  command: string,
  args: readonly string[],
  cwd: string | undefined,
  env: Readonly<Record<string, string>>,
): Promise<ChildProcess> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, [...args], {
      cwd,
      env,
      // Without a tty nothing can be answered: a command that reads gets the end of its input and continues.
      stdio: ["ignore", "pipe", "pipe"],
      detached: process.platform !== "win32",
      windowsHide: true,
    });
    child.once("error", (error) => {
      reject(new Error(`${command} could not be started: ${messageOf(error)}`));
    });
    child.once("spawn", () => {
      resolve(child);
    });
  });
}

class AgentTerminal implements vscode.Pseudoterminal {
  exit: acp.TerminalExitStatus | undefined;
  readonly ended: Promise<acp.TerminalExitStatus>;
  private readonly writeEmitter = new vscode.EventEmitter<string>();
  readonly onDidWrite = this.writeEmitter.event;
  private terminal: vscode.Terminal | undefined;
  private readonly naming: NodeJS.Timeout;
  private readonly decoders = [new StringDecoder("utf8"), new StringDecoder("utf8")] as const;
  private title: string;
  /** What stands above the output. An agent may run a command as a script; its tool call says which command that is. */
  private command: string;
  private pending = "";
  private reveals = false;
  private opened = false;
  private closed = false;

  constructor(
    private readonly child: ChildProcess,
    readonly buffer: OutputBuffer,
    argv: readonly string[],
    private readonly onChange: () => void,
  ) {
    this.title = short(argv.join(" "), 80);
    this.command = argv.map(quoted).join(" ");
    this.ended = new Promise((resolve) => {
      child.once("exit", (code, signal) => {
        const done = (): void => {
          clearTimeout(timer);
          child.off("close", done);
          this.exit = { exitCode: code, signal };
          this.over(code, signal);
          resolve(this.exit);
        };
        const timer = setTimeout(done, DRAIN);
        child.once("close", done);
      });
    });
    child.stdout?.on("data", (chunk: Buffer) => {
      this.take(chunk, 0);
    });
    child.stderr?.on("data", (chunk: Buffer) => {
      this.take(chunk, 1);
    });
    this.naming = setTimeout(() => {
      this.made();
    }, NAMING);
  }

  // --- called by VS Code ------------------------------------------------------------------------------------------

  open(): void {
    this.opened = true;
    if (this.pending !== "") {
      this.writeEmitter.fire(this.pending);
      this.pending = "";
    }
  }

  close(): void {
    this.closed = true;
    this.kill(true);
    clearTimeout(this.naming);
    this.terminal?.dispose();
  }

  handleInput(data: string): void {
    if (data === "\u0003") {
      this.signal("SIGINT");
    }
  }

  // --- called by the client ---------------------------------------------------------------------------------------

  show(): boolean {
    const terminal = this.made();
    if (this.closed) {
      return false;
    }
    terminal.show(true);
    return true;
  }

  /** Shows it once it has its name. */
  reveal(): void {
    this.reveals = true;
  }

  name(title: string, command: string): void {
    if (this.terminal === undefined) {
      this.title = short(title, 80);
      this.command = command;
    }
    this.made();
  }

  private made(): vscode.Terminal {
    clearTimeout(this.naming);
    if (this.terminal === undefined) {
      this.pending = `\u001b[2m$ ${visible(this.command).replaceAll("\n", "\r\n")}\u001b[0m\r\n${this.pending}`;
      this.terminal = vscode.window.createTerminal({
        name: this.title,
        pty: this,
        iconPath: new vscode.ThemeIcon("hubot"),
        isTransient: true,
      });
      if (this.reveals) {
        this.terminal.show(true);
      }
    }
    return this.terminal;
  }

  facts(): TerminalFacts {
    const tail = plainText(this.buffer.tail(TAIL_BYTES)).slice(-TAIL_CHARS);
    return { title: this.title, tail, ...(this.exit === undefined ? {} : { exit: exitWords(this.exit) }) };
  }

  kill(atOnce = false): void {
    if (this.exit !== undefined) {
      return;
    }
    this.signal(atOnce ? "SIGKILL" : "SIGTERM");
    if (!atOnce) {
      const timer = setTimeout(() => {
        this.signal("SIGKILL");
      }, KILL_GRACE);
      timer.unref();
    }
  }

  /** Signals the whole process group, including a shell's children. */
  private signal(signal: NodeJS.Signals): void {
    const { pid } = this.child;
    if (pid === undefined) {
      return;
    }
    try {
      if (process.platform === "win32") {
        this.child.kill(signal);
      } else {
        process.kill(-pid, signal);
      }
    } catch {
      // The group is already gone.
    }
  }

  private take(chunk: Buffer, stream: 0 | 1): void {
    this.buffer.write(chunk);
    this.write(this.decoders[stream].write(chunk).replace(/\r?\n/gu, "\r\n"));
    this.onChange();
  }

  private over(code: number | null, signal: NodeJS.Signals | null): void {
    const colour = code === 0 ? 32 : 31;
    this.write(`\r\n\u001b[${String(colour)};2m[${exitWords({ exitCode: code, signal })}]\u001b[0m\r\n`);
    this.onChange();
  }

  private write(text: string): void {
    if (this.opened) {
      this.writeEmitter.fire(text);
      return;
    }
    this.pending += text;
    // Cut only at twice the limit: each character is copied a limited number of times.
    if (this.pending.length > 2 * UNOPENED_CHARS) {
      this.pending = this.pending.slice(-UNOPENED_CHARS);
    }
  }
}

function exitWords({ exitCode, signal }: acp.TerminalExitStatus): string {
  return typeof signal === "string" ? `killed by ${signal}` : `exit status ${String(exitCode ?? "unknown")}`;
}
