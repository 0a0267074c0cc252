/** What went wrong with the agent, in words, with what can be done about it. */
import type * as acp from "@agentclientprotocol/sdk";
import type { Problem } from "../core/messages.js";
import type { Found, NotFound } from "../core/find.js";
import type { Ended } from "./link.js";

const SETTINGS = { label: "Open settings", command: "acpCoder.openSettings" };
const RESTART = { label: "Start again", command: "acpCoder.restart" };
const LOG = { label: "Show log", command: "acpCoder.showLog" };

export function noFolderProblem(): Problem {
  return {
    title: "Open a folder first.",
    detail: "An agent works in a folder: what it may read and change is bounded by it.",
    actions: [{ label: "Open folder", command: "acpCoder.openFolder" }],
  };
}

export function notFoundProblem(found: NotFound): Problem {
  if (found.wrongSetting !== undefined) {
    return {
      title: "The agent's program is not there.",
      detail: `The setting \`acpCoder.command\` names \`${found.wrongSetting}\`, which is not a program that can be run${found.looked[0] === found.wrongSetting ? "" : ` (looked for \`${found.looked[0] ?? ""}\`)`}. Correct the setting, or empty it to let the extension look for acp-coder itself.`,
      actions: [SETTINGS, RESTART],
    };
  }
  return {
    title: "acp-coder is not installed.",
    detail: [
      "Install it from its own folder (`uv tool install /path/to/acp-coder`, or `pip install /path/to/acp-coder` in this folder's virtual environment), then start again.",
      "",
      "If it is somewhere else, or you want another agent that speaks ACP, name it in the setting `acpCoder.command`.",
      ...(found.uvx === true ? ["", "uvx is there and could fetch the package `acp-coder` from your package index and run it."] : []),
      "",
      `Looked for: ${found.looked.map((place) => `\`${place}\``).join(", ")}.`,
    ].join("\n"),
    actions: [RESTART, SETTINGS, ...(found.uvx === true ? [{ label: "Fetch and run by uvx", command: "acpCoder.useUvx" }] : [])],
  };
}

export function startProblem(message: string, stderr: string, found: Found): Problem {
  return {
    title: "The agent did not start.",
    detail: [`\`${[found.command, ...found.args].join(" ")}\`: ${message}`, ...quoted(stderr)].join("\n\n"),
    actions: [RESTART, SETTINGS, LOG],
  };
}

export function endedProblem({ code, signal, stderr }: Ended): Problem {
  const how = signal === null ? `with exit status ${String(code)}` : `by ${signal}`;
  return {
    title: "The agent ended.",
    detail: [`It ended ${how}. Start it again: the session goes on where it was.`, ...quoted(stderr)].join("\n\n"),
    actions: [RESTART, LOG],
  };
}

export function loginProblem(message: string, methods: readonly acp.AuthMethod[]): Problem {
  return {
    title: "The agent needs a login.",
    detail: methods.length > 0 ? `${message}\n\nVariables of the agent stand in the setting \`acpCoder.environment\`.` : `${message}\n\nThe agent offers no way to log in from here: see its own documentation.`,
    actions: [
      // Those of a terminal ask for the key; the others take one that is there already.
      ...[...methods].sort((left, right) => Number("type" in right) - Number("type" in left)).map((method) => ({ label: method.name, command: "acpCoder.login", argument: method.id })),
      SETTINGS,
      RESTART,
    ],
  };
}

export function stuckProblem(): Problem {
  return {
    title: "The agent does not stop.",
    detail: "It was asked to stop and has not answered. Starting it again ends it; the session goes on where it was.",
    actions: [RESTART, LOG],
  };
}

function quoted(stderr: string): string[] {
  const lines = stderr.split("\n").slice(-12).join("\n");
  return lines === "" ? [] : ["```text\n" + lines.replaceAll("```", "'''") + "\n```"];
}
