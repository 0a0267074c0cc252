import { Emitter } from "../core/emitter.js";
import type { TerminalFacts } from "../core/cards.js";
import type { CallRecord, ToolCalls } from "../core/toolCalls.js";
import { plainText } from "../core/words.js";

const TAIL_CHARS = 8_000;

/** The terminals of other clients, of which this one knows what the agent says of their commands in the end. */
export class Outputs {
  readonly changed = new Emitter<string>();

  constructor(
    private readonly calls: ToolCalls,
    private readonly session: () => string | undefined,
  ) {}

  facts(terminalId: string): TerminalFacts | undefined {
    const record = this.calls.list(this.session() ?? "").find(({ content }) => content.some((one) => one.type === "terminal" && one.terminalId === terminalId));
    return record === undefined ? undefined : factsOf(record);
  }
}

function factsOf({ title, rawOutput }: CallRecord): TerminalFacts {
  const { stdout, stderr, exit_code: code } = (rawOutput ?? {}) as { stdout?: unknown; stderr?: unknown; exit_code?: unknown };
  const tail = [stdout, stderr].filter((text): text is string => typeof text === "string" && text !== "").join("\n");
  return { title, tail: plainText(tail).slice(-TAIL_CHARS), ...(typeof code === "number" ? { exit: `exit status ${String(code)}` } : {}) };
}
