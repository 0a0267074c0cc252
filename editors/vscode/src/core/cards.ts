import type { Diff, ToolCallContent } from "@agentclientprotocol/sdk";
import type { ToolCard, ToolContent } from "./messages.js";
import { markdownOf } from "./contentBlocks.js";
import { diffLines } from "./lines.js";
import type { CallRecord } from "./toolCalls.js";
import { isOver } from "./toolCalls.js";
import { labelIn } from "./uris.js";
import { plainText, visible } from "./words.js";

/** Characters of a text shown on a card; the rest is a click away. */
const SHOWN_CHARS = 20_000;
const SHOWN_INPUT_CHARS = 4_000;
const SHOWN_DIFF_LINES = 120;
const SHOWN_LINE_CHARS = 500;
const SHOWN_IMAGE_CHARS = 8_000_000;

export interface TerminalFacts {
  readonly title: string;
  readonly tail: string;
  readonly exit?: string;
}

/** A call as the chat shows it. `terminal`: what is known of a terminal of this client. */
export function cardOf(record: CallRecord, terminal: (terminalId: string) => TerminalFacts | undefined, folder?: string): ToolCard {
  const input = inputText(record.rawInput);
  return {
    toolCallId: record.toolCallId,
    title: record.title,
    kind: record.kind,
    status: record.status,
    ...(record.parentId === undefined ? {} : { parentId: record.parentId }),
    ...(isOver(record.status) && !record.replayed && record.endedAt !== undefined ? { seconds: (record.endedAt - record.startedAt) / 1000 } : {}),
    locations: record.locations.map(({ path, line }) => {
      return { path, label: labelIn(folder, path), ...(typeof line === "number" ? { line } : {}) };
    }),
    content: record.content.flatMap((content, index) => shown(content, index, terminal, folder) ?? []),
    ...exitOf(record),
    ...(input === "" ? {} : { input }),
  };
}

function exitOf({ kind, status, content, rawOutput }: CallRecord): { readonly exitCode?: number } {
  const code: unknown = typeof rawOutput === "object" && rawOutput !== null && "exit_code" in rawOutput ? rawOutput.exit_code : undefined;
  const isTold = content.some(({ type }) => type === "terminal");
  return kind === "execute" && isOver(status) && typeof code === "number" && !isTold ? { exitCode: code } : {};
}

function shown(
  content: ToolCallContent,
  index: number,
  terminal: (terminalId: string) => TerminalFacts | undefined,
  folder: string | undefined,
): ToolContent | undefined {
  switch (content.type) {
    case "diff": {
      return { type: "diff", index, label: labelIn(folder, content.path), isNew: (content.oldText ?? null) === null, ...changesOf(content) };
    }
    case "terminal": {
      const known = terminal(content.terminalId) ?? { title: "Terminal", tail: "" };
      return { type: "terminal", terminalId: content.terminalId, ...known };
    }
    case "content": {
      const block = content.content;
      if (block.type === "image" && block.data.length <= SHOWN_IMAGE_CHARS) {
        return { type: "image", mimeType: block.mimeType, data: block.data };
      }
      return text(markdownOf(block));
    }
  }
}

type Changes = Pick<Extract<ToolContent, { type: "diff" }>, "added" | "removed" | "lines" | "more">;

/** A card is drawn many times; what a diff changes is found out once. */
const CHANGES = new WeakMap<Diff, Changes>();

function changesOf(diff: Diff): Changes {
  const known = CHANGES.get(diff);
  if (known !== undefined) {
    return known;
  }
  const lines = diffLines(diff.oldText ?? "", diff.newText);
  const count = (sign: string): number => lines.filter((line) => line.startsWith(sign)).length;
  const shownLines = lines.slice(0, SHOWN_DIFF_LINES).map((line) => visible(line.slice(0, SHOWN_LINE_CHARS)));
  const changes = { added: count("+"), removed: count("-"), lines: shownLines, more: lines.length - shownLines.length };
  CHANGES.set(diff, changes);
  return changes;
}

function text(whole: string): ToolContent | undefined {
  if (whole === "") {
    return undefined;
  }
  return { type: "text", text: whole.slice(0, SHOWN_CHARS), truncated: whole.length > SHOWN_CHARS };
}

function inputText(input: unknown): string {
  if (input === undefined || input === null) {
    return "";
  }
  const whole = typeof input === "string" ? input : JSON.stringify(input, undefined, 2);
  return whole === "{}" ? "" : whole.length > SHOWN_INPUT_CHARS ? `${whole.slice(0, SHOWN_INPUT_CHARS)}\n…` : whole;
}

/** The complete text of a call, opened by "show output". */
export function outputOf(record: CallRecord, terminal: (terminalId: string) => string | undefined): string {
  const parts = [`# ${record.title}`, ""];
  const input = record.rawInput === undefined || record.rawInput === null ? "" : typeof record.rawInput === "string" ? record.rawInput : JSON.stringify(record.rawInput, undefined, 2);
  if (input !== "" && input !== "{}") {
    parts.push("## Input", "", input, "");
  }
  parts.push(`## Output (${record.status})`, "");
  let said = false;
  for (const content of record.content) {
    const words =
      content.type === "diff"
        ? `Changes ${content.path}`
        : content.type === "terminal"
          ? plainText(terminal(content.terminalId) ?? "(the terminal is not there any more)")
          : markdownOf(content.content);
    said ||= words !== "";
    parts.push(words, "");
  }
  if (!said && record.rawOutput !== undefined && record.rawOutput !== null) {
    parts.push(typeof record.rawOutput === "string" ? record.rawOutput : JSON.stringify(record.rawOutput, undefined, 2), "");
  }
  return parts.join("\n");
}
