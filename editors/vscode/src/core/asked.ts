/** What a permission request is about: all of it, since nobody should approve what they cannot read to its end. */
import type { RequestPermissionRequest } from "@agentclientprotocol/sdk";
import { diffLines } from "./lines.js";
import type { About } from "./messages.js";
import type { CallRecord } from "./toolCalls.js";
import { visible } from "./words.js";

/** Of a question with more than this many characters the chat shows no more, and nothing can be allowed there. */
const MOST_CHARS = 1_000_000;

/** `record`: the call as it is known, with what the request says of it. */
export function aboutOf(record: CallRecord, meta: RequestPermissionRequest["toolCall"]["_meta"], folder?: string): About {
  const texts = record.content.flatMap((content) => (content.type === "content" && content.content.type === "text" ? [visible(content.content.text).trim()] : []));
  const diffs = record.content.flatMap((content) => {
    if (content.type !== "diff") {
      return [];
    }
    const lines = diffLines(content.oldText ?? "", content.newText).map(visible);
    return [{ label: placeIn(folder, content.path), path: visible(content.path), lines }];
  });
  // acp-coder says why it asks in the last text; other agents' texts are all part of what is asked about.
  const why = meta?.["asked"] !== undefined ? (texts.pop() ?? "") : "";
  const command = commandOf(record.rawInput);
  const title = record.title.trim();
  const parts = [command === "" || title.includes(command) ? title : command];
  parts.push(...texts.map(withoutFence).filter((text) => text !== "" && !parts.some((part) => part.includes(text))));
  if (command === "" && diffs.length === 0) {
    parts.push(...(record.kind === "switch_mode" && texts.length > 0 ? unsaid : inputOf)(record.rawInput, parts.join("\n")));
  }
  const text = (diffs.length > 0 && parts[0] === title && !title.includes("\n") ? parts.slice(1) : parts).join("\n\n");
  const size = text.length + diffs.reduce((sum, { lines }) => sum + lines.reduce((chars, line) => chars + line.length, 0), 0);
  const whole = size <= MOST_CHARS;
  return {
    text: text.slice(0, MOST_CHARS),
    diffs: whole ? diffs : diffs.map((diff) => ({ ...diff, lines: diff.lines.slice(0, 1_000) })),
    why: why.split(/\n+/u).filter((line) => line !== ""),
    more: moreOf(meta?.["asked"]),
    whole,
  };
}

/** What acp-coder says of its reasons beyond the sentence: each where there are several, and the rules that ask. */
function moreOf(asked: unknown): string[] {
  const { reason, rule } = (typeof asked === "object" && asked !== null ? asked : {}) as { reason?: unknown; rule?: unknown };
  const reasons = typeof reason === "string" ? visible(reason).split("; ") : [];
  return [...(reasons.length > 1 ? reasons : []), ...(typeof rule === "string" && rule !== "" ? [`Rule: ${visible(rule)}`] : [])];
}

/** Below the session's folder from there, elsewhere whole: nobody should take one file for another. */
function placeIn(folder: string | undefined, path: string): string {
  const isInside = folder !== undefined && folder !== "" && path.startsWith(`${folder}/`) && !path.split("/").includes("..");
  return visible(isInside ? path.slice(folder.length + 1) : path);
}

/** What is to be read, to be compared with another question's. */
export function subjectOf({ text, diffs }: About): string {
  return JSON.stringify([text, diffs]);
}

/** The command line that a call runs, if its input has one. */
export function commandOf(input: unknown): string {
  const command = typeof input === "object" && input !== null ? (input as Readonly<Record<string, unknown>>)["command"] : undefined;
  if (Array.isArray(command)) {
    return visible(command.map((part) => quoted(String(part))).join(" ")).trim();
  }
  return typeof command === "string" ? visible(command).trim() : "";
}

export function quoted(argument: string): string {
  return /^[\w@%+=:,./-]+$/u.test(argument) ? argument : `'${argument.replaceAll("'", "'\\''")}'`;
}

/** The input of a call that is neither a command nor a change, unless it is empty or all said already. */
function inputOf(input: unknown, said: string): string[] {
  if (input === undefined || input === null) {
    return [];
  }
  const values = typeof input === "object" ? Object.values(input) : [input];
  if (values.every((value) => (typeof value === "string" || typeof value === "number") && said.includes(visible(String(value))))) {
    return [];
  }
  return [visible(typeof input === "string" ? input : JSON.stringify(input, undefined, 2))];
}

/** The input of a plan's call has the plan, too: only what is not said of it. */
function unsaid(input: unknown, said: string): string[] {
  if (typeof input !== "object" || input === null) {
    return inputOf(input, said);
  }
  const left = Object.entries(input).filter(([, value]) => typeof value !== "string" || !said.includes(visible(value).trim()));
  return left.map(([name, value]) => `${visible(name)}: ${visible(typeof value === "string" ? value : JSON.stringify(value))}`);
}

function withoutFence(text: string): string {
  return (/^(`{3,})\w*\n([^]*)\n\1$/u.exec(text)?.[2] ?? text).trim();
}
