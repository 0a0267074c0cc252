/** Finds the agent: the setting, PATH, the workspace's virtual environment, or `uvx acp-coder`. */

export interface Places {
  readonly isExecutable: (path: string) => Promise<boolean>;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly platform: NodeJS.Platform;
  /** Absolute paths of the workspace's folders. */
  readonly folders: readonly string[];
  readonly home: string;
}

export interface AgentSettings {
  /** Whether the user wants `uvx acp-coder`, which fetches the program and runs it. */
  readonly uvx: boolean;
  readonly command: string;
  readonly args: readonly string[];
}

export interface Found {
  readonly command: string;
  readonly args: readonly string[];
  /** How it was found, for a user. */
  readonly origin: string;
}

export interface NotFound {
  readonly looked: readonly string[];
  /** The setting that names something nonexistent. */
  readonly wrongSetting?: string;
  /** uvx is available, but the user has not allowed it to fetch the agent. */
  readonly uvx?: boolean;
}

const NAME = "acp-coder";
const VENVS = [".venv", "venv", "env"];

/**
 * The command that starts the agent.
 *
 * An explicit setting is never ignored: if it cannot be run, nothing else is tried, so that the user does not talk to
 * another agent than they chose. A program not on this machine is fetched only if the user wants it
 * (`settings.uvx`). The user's own program takes precedence over one in the folder.
 */
export async function findAgent(settings: AgentSettings, places: Places): Promise<Found | NotFound> {
  const wanted = expand(settings.command.trim(), places);
  if (wanted !== "") {
    const found = isPath(wanted) ? await executable(absolute(wanted, places), places) : await onPath(wanted, places);
    return found === undefined
      ? { looked: [wanted], wrongSetting: settings.command }
      : { command: found, args: settings.args, origin: "the setting acpCoder.command" };
  }
  const looked = [`${NAME} on PATH`];
  const command = (await onPath(NAME, places)) ?? (await executable(join(places, places.home, ".local", "bin", NAME), places));
  if (command !== undefined) {
    return { command, args: settings.args, origin: "PATH" };
  }
  const active = places.environment["VIRTUAL_ENV"];
  const environments = [
    ...places.folders.flatMap((folder) => VENVS.map((name) => join(places, folder, name))),
    ...(active ? [active] : []),
  ];
  for (const environment of environments) {
    const place = join(places, environment, places.platform === "win32" ? "Scripts" : "bin", NAME);
    looked.push(place);
    const found = await executable(place, places);
    if (found !== undefined) {
      return { command: found, args: settings.args, origin: `the virtual environment ${environment}` };
    }
  }
  looked.push("uvx on PATH");
  const uvx = (await onPath("uvx", places)) ?? (await executable(join(places, places.home, ".local", "bin", "uvx"), places));
  if (uvx !== undefined && settings.uvx) {
    return { command: uvx, args: [NAME, ...settings.args], origin: "uvx" };
  }
  return { looked, uvx: uvx !== undefined };
}

export function isFound(found: Found | NotFound): found is Found {
  return "command" in found;
}

/** `~`, `${workspaceFolder}` and `${env:NAME}`, as VS Code's own settings have them. */
export function expand(text: string, places: Places): string {
  const home = text.replace(/^~(?=$|[/\\])/u, () => places.home);
  return home
    .replace(/\$\{workspaceFolder\}/gu, () => places.folders[0] ?? "")
    .replace(/\$\{userHome\}/gu, () => places.home)
    .replace(/\$\{env:([^}]+)\}/gu, (_, name: string) => places.environment[name] ?? "");
}

function isPath(command: string): boolean {
  return /[/\\]/u.test(command);
}

function absolute(path: string, places: Places): string {
  const isAbsolute = places.platform === "win32" ? /^(?:[A-Za-z]:)?[/\\]/u.test(path) : path.startsWith("/");
  const folder = places.folders[0];
  return isAbsolute || folder === undefined ? path : join(places, folder, path);
}

async function onPath(name: string, places: Places): Promise<string | undefined> {
  const path = places.environment["PATH"] ?? places.environment["Path"] ?? "";
  for (const folder of path.split(places.platform === "win32" ? ";" : ":")) {
    const found = folder === "" ? undefined : await executable(join(places, folder, name), places);
    if (found !== undefined) {
      return found;
    }
  }
  return undefined;
}

async function executable(path: string, places: Places): Promise<string | undefined> {
  const endings = places.platform === "win32" && !/\.(?:exe|cmd|bat)$/iu.test(path) ? [".exe", ".cmd", ".bat"] : [""];
  for (const ending of endings) {
    if (await places.isExecutable(path + ending)) {
      return path + ending;
    }
  }
  return undefined;
}

function join(places: Places, ...parts: readonly string[]): string {
  const separator = places.platform === "win32" ? "\\" : "/";
  return parts.map((part, index) => (index === parts.length - 1 ? part : part.replace(/[/\\]+$/u, ""))).join(separator);
}
