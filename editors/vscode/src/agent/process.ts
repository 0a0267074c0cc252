import type { ChildProcessWithoutNullStreams } from "node:child_process";
import { spawn } from "node:child_process";
import { messageOf } from "../core/words.js";
import type { Command, Ended } from "./link.js";
import { StartFailure } from "./link.js";

const STDERR_KEPT = 8_000;
/** Milliseconds an agent has to exit after its stdin is closed, and then again after SIGTERM. */
const GRACE = 2_000;

/** The agent as a child process. */
export class AgentProcess {
  private tail = "";
  private ending = false;
  readonly ended: Promise<Ended>;

  private constructor(
    private readonly child: ChildProcessWithoutNullStreams,
    onStderr: (text: string) => void,
  ) {
    child.stderr.setEncoding("utf8");
    child.stderr.on("data", (text: string) => {
      this.tail = (this.tail + text).slice(-STDERR_KEPT);
      onStderr(text);
    });
    // A broken pipe means that the agent has ended, which `ended` reports.
    child.stdin.on("error", () => undefined);
    this.ended = new Promise((resolve) => {
      child.once("exit", (code, signal) => {
        resolve({ code, signal, stderr: this.stderrTail, wanted: this.ending });
      });
    });
  }

  /** Throws StartFailure if the program cannot be run. */
  static start(command: Command, onStderr: (text: string) => void): Promise<AgentProcess> {
    if (process.platform === "win32" && /\.(?:cmd|bat)$/iu.test(command.command)) {
      const words = `${command.command} is a batch file, which Windows starts only through its shell. Set acpCoder.command to node and put the script into acpCoder.arguments.`;
      return Promise.reject(new StartFailure(words, ""));
    }
    return new Promise((resolve, reject) => {
      const child = spawn(command.command, [...command.args], {
        cwd: command.cwd,
        env: command.env,
        stdio: "pipe",
        windowsHide: true,
      });
      const failed = (error: Error): void => {
        reject(new StartFailure(`${command.command} could not be started: ${messageOf(error)}`, ""));
      };
      child.once("error", failed);
      child.once("spawn", () => {
        child.off("error", failed);
        child.on("error", () => undefined);
        resolve(new AgentProcess(child, onStderr));
      });
    });
  }

  get stdin(): ChildProcessWithoutNullStreams["stdin"] {
    return this.child.stdin;
  }

  get stdout(): ChildProcessWithoutNullStreams["stdout"] {
    return this.child.stdout;
  }

  get pid(): number | undefined {
    return this.child.pid;
  }

  get stderrTail(): string {
    return this.tail.trim();
  }

  /** Closes stdin; an agent that does not exit is asked to, then killed. */
  async end(): Promise<void> {
    this.ending = true;
    this.child.stdin.end();
    for (const signal of ["SIGTERM", "SIGKILL"] as const) {
      if (await settled(this.ended, GRACE)) {
        return;
      }
      this.child.kill(signal);
    }
    await settled(this.ended, GRACE);
  }
}

async function settled(promise: Promise<unknown>, milliseconds: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => {
      resolve(false);
    }, milliseconds);
  });
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
