/** Problems with the agent as messages, with what can be done about them. */
import type * as acp from "@agentclientprotocol/sdk";
import type { Problem } from "../core/messages.js";
import type { Found, NotFound } from "../core/find.js";
import type { Problems } from "./host.js";
import type { Ended } from "./link.js";

/** Those of an agent that runs. */
export const problems: Problems = {
  ended: (ended) => endedProblem(ended),
  stuck: () => stuckProblem(),
  login: (message, methods) => loginProblem(message, methods),
};

const SETTINGS = { label: "Open settings", command: "acpCoder.openSettings" };
const LOCATE = { label: "Locate…", command: "acpCoder.locate" };
const WALKTHROUGH = { label: "Get started", command: "acpCoder.openWalkthrough" };
const RESTART = { label: "Start again", command: "acpCoder.restart" };
const LOG = { label: "Show log", command: "acpCoder.showLog" };

export function noFolderProblem(): Problem {
  return {
    first: true,
    title: "Open a folder first.",
    detail: "The agent works in a folder, which limits what it can read and change.",
    actions: [{ label: "Open folder", command: "acpCoder.openFolder" }],
  };
}

export function notFoundProblem(found: NotFound): Problem {
  if (found.wrongSetting !== undefined) {
    return {
      title: "The agent's program was not found.",
      detail: `The setting \`acpCoder.command\` is \`${found.wrongSetting}\`, which is not an executable program${found.looked[0] === found.wrongSetting ? "" : ` (looked for \`${found.looked[0] ?? ""}\`)`}. Correct the setting, or clear it to let the extension look for acp-coder itself.`,
      actions: [SETTINGS, RESTART],
    };
  }
  return {
    first: true,
    title: "Install acp-coder, or locate it.",
    detail: [
      "```sh\nuv tool install /path/to/acp-coder\n```",
      "",
      "installs it from its own folder; so does `pip install` in a virtual environment.",
      ...(found.uvx === true ? ["", "uvx is installed and could download the package `acp-coder` from your package index and run it."] : []),
      "",
      `Looked for: ${found.looked.map((place) => `\`${place}\``).join(", ")}. Any other ACP agent works, too: set \`acpCoder.command\`.`,
    ].join("\n"),
    actions: [...(found.uvx === true ? [{ label: "Download and run with uvx", command: "acpCoder.useUvx" }] : []), LOCATE, { ...RESTART, label: "Look again" }, SETTINGS, WALKTHROUGH],
  };
}

export function startProblem(message: string, stderr: string, found: Found): Problem {
  return {
    title: "The agent did not start.",
    detail: [`\`${[found.command, ...found.args].join(" ")}\`: ${message}`, ...quoted(stderr)].join("\n\n"),
    actions: [RESTART, SETTINGS, LOG],
  };
}

function endedProblem({ code, signal, stderr }: Ended): Problem {
  const how = signal === null ? `with exit status ${String(code)}` : `after ${signal}`;
  return {
    title: "The agent exited.",
    detail: [`It exited ${how}. Start it again to continue the session.`, ...quoted(stderr)].join("\n\n"),
    actions: [RESTART, LOG],
  };
}

function loginProblem(message: string, methods: readonly acp.AuthMethod[]): Problem {
  return {
    first: true,
    title: "The agent needs a login.",
    detail: methods.length > 0 ? `${message}\n\nThe agent's environment variables are in the setting \`acpCoder.environment\`.` : `${message}\n\nThe agent offers no way to log in from here: see its documentation.`,
    actions: [
      // Terminal methods prompt for the key; the others use an existing one.
      ...[...methods].sort((left, right) => Number("type" in right) - Number("type" in left)).map((method) => ({ label: method.name, command: "acpCoder.login", argument: method.id })),
      SETTINGS,
      { ...RESTART, label: "Look again" },
      WALKTHROUGH,
    ],
  };
}

function stuckProblem(): Problem {
  return {
    title: "The agent does not stop.",
    detail: "It was asked to stop but has not responded. Restarting kills it; the session continues afterwards.",
    actions: [RESTART, LOG],
  };
}

function quoted(stderr: string): string[] {
  const lines = stderr.split("\n").slice(-12).join("\n");
  return lines === "" ? [] : ["```text\n" + lines.replaceAll("```", "'''") + "\n```"];
}
