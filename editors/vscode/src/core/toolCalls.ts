import type { ToolCall, ToolCallContent, ToolCallLocation, ToolCallUpdate } from "@agentclientprotocol/sdk";
import { Emitter } from "./emitter.js";
import { findingsOf, type Finding } from "./findings.js";
import { visible } from "./words.js";

/** ACP's states, and the one that a client must set for calls left open by a cancelled turn. */
export type CallStatus = "pending" | "in_progress" | "completed" | "failed" | "cancelled";
export type CallKind = NonNullable<ToolCall["kind"]>;

const KINDS: ReadonlySet<string> = new Set([
  "read",
  "edit",
  "delete",
  "move",
  "search",
  "execute",
  "think",
  "fetch",
  "switch_mode",
  "other",
]);
const STATUSES: ReadonlySet<string> = new Set(["pending", "in_progress", "completed", "failed"]);

/** The current state of one tool call. The object is replaced, never changed: a listener may keep it. */
export interface CallRecord {
  readonly sessionId: string;
  readonly toolCallId: string;
  readonly title: string;
  readonly name: string | undefined;
  readonly kind: CallKind;
  readonly status: CallStatus;
  readonly content: readonly ToolCallContent[];
  readonly locations: readonly ToolCallLocation[];
  readonly rawInput: unknown;
  readonly rawOutput: unknown;
  /** What a review found; `undefined` for other calls. */
  readonly findings: readonly Finding[] | undefined;
  /** The call of the sub-agent's parent, in the same session. */
  readonly parentId: string | undefined;
  /** Which prompt of the session it belongs to, counted from 1; 0 before the first. */
  readonly turn: number;
  /** From an earlier time: replayed by `session/load`. */
  readonly replayed: boolean;
  /** Milliseconds of the clock that was passed in. */
  readonly startedAt: number;
  readonly endedAt: number | undefined;
  /** Its index among the session's calls. */
  readonly order: number;
}

export interface CallChange {
  readonly record: CallRecord;
  readonly before: CallRecord | undefined;
}

export function isOver(status: CallStatus): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}

/**
 * All tool calls of all sessions of this window, by session and `toolCallId`.
 *
 * Updates may arrive in any order and number: one for an unannounced call makes it known; one that arrives after the
 * end changes what is shown, but does not make an ended call run again.
 */
export class ToolCalls {
  readonly changed: Emitter<CallChange>;
  private readonly sessions = new Map<string, Map<string, CallRecord>>();
  private readonly open = new Map<string, CallRecord>();
  private readonly below = new Map<string, Set<string>>();

  constructor(
    private readonly now: () => number = Date.now,
    onError?: (error: unknown) => void,
  ) {
    this.changed = new Emitter(onError);
  }

  get(sessionId: string, toolCallId: string): CallRecord | undefined {
    return this.sessions.get(sessionId)?.get(toolCallId);
  }

  /** The calls of a session in the order in which they were announced. */
  list(sessionId: string): CallRecord[] {
    return [...(this.sessions.get(sessionId)?.values() ?? [])];
  }

  /** The calls of all sessions that have not ended. */
  running(): CallRecord[] {
    return [...this.open.values()];
  }

  /** The calls whose parent is this one, in the order in which that became known. */
  children(sessionId: string, toolCallId: string): CallRecord[] {
    return [...(this.below.get(keyOf(sessionId, toolCallId)) ?? [])].flatMap((id) => this.get(sessionId, id) ?? []);
  }

  private put(record: CallRecord, calls: Map<string, CallRecord>, before: CallRecord | undefined): void {
    const { sessionId, toolCallId, parentId } = record;
    calls.set(toolCallId, record);
    if (isOver(record.status)) {
      this.open.delete(keyOf(sessionId, toolCallId));
    } else {
      this.open.set(keyOf(sessionId, toolCallId), record);
    }
    if (parentId !== before?.parentId) {
      if (before?.parentId !== undefined) {
        this.below.get(keyOf(sessionId, before.parentId))?.delete(toolCallId);
      }
      if (parentId !== undefined) {
        const key = keyOf(sessionId, parentId);
        this.below.set(key, (this.below.get(key) ?? new Set()).add(toolCallId));
      }
    }
    this.changed.fire({ record, before });
  }

  /** Applies a `tool_call`, a `tool_call_update` or the call of a permission request. */
  apply(
    sessionId: string,
    update: ToolCall | ToolCallUpdate,
    context: { readonly turn: number; readonly replayed: boolean; readonly declined?: boolean },
  ): CallRecord {
    const calls = this.sessions.get(sessionId) ?? new Map<string, CallRecord>();
    this.sessions.set(sessionId, calls);
    const before = calls.get(update.toolCallId);
    const said = statusAfter(before?.status, update.status);
    // A call that the user has rejected or stopped has not failed.
    const status = said === "failed" && context.declined === true ? "cancelled" : said;
    const over = isOver(status);
    const now = this.now();
    const record: CallRecord = {
      sessionId,
      toolCallId: update.toolCallId,
      title: typeof update.title === "string" ? visible(update.title) : (before?.title ?? "Tool call"),
      name: nameOf(update) ?? before?.name,
      kind: kindOf(update.kind) ?? before?.kind ?? "other",
      status,
      content: update.content ?? before?.content ?? [],
      locations: update.locations ?? before?.locations ?? [],
      rawInput: update.rawInput ?? before?.rawInput,
      rawOutput: update.rawOutput ?? before?.rawOutput,
      findings: findingsOf(update._meta) ?? before?.findings,
      parentId: this.above(sessionId, update.toolCallId, parentOf(update) ?? before?.parentId),
      turn: before?.turn ?? context.turn,
      replayed: before?.replayed ?? context.replayed,
      startedAt: before === undefined || (before.status === "pending" && status === "in_progress") ? now : before.startedAt,
      endedAt: over ? (before?.endedAt ?? now) : undefined,
      order: before?.order ?? calls.size,
    };
    this.put(record, calls, before);
    return record;
  }

  /** The parent, unless the call would become its own ancestor: such calls would not be shown anywhere. */
  private above(sessionId: string, toolCallId: string, parentId: string | undefined): string | undefined {
    for (let id = parentId; id !== undefined; id = this.get(sessionId, id)?.parentId) {
      if (id === toolCallId) {
        return undefined;
      }
    }
    return parentId;
  }

  /** ACP: a client marks the calls left open by a cancelled turn. Also used if a turn failed. */
  endOpen(sessionId: string, status: "cancelled" | "failed"): void {
    const calls = this.sessions.get(sessionId);
    for (const before of this.running()) {
      if (before.sessionId === sessionId && calls !== undefined) {
        this.put({ ...before, status, endedAt: this.now() }, calls, before);
      }
    }
  }

  forget(sessionId: string): void {
    for (const toolCallId of this.sessions.get(sessionId)?.keys() ?? []) {
      this.open.delete(keyOf(sessionId, toolCallId));
      this.below.delete(keyOf(sessionId, toolCallId));
    }
    this.sessions.delete(sessionId);
  }
}

function keyOf(sessionId: string, toolCallId: string): string {
  return `${sessionId}\u0000${toolCallId}`;
}

function statusAfter(before: CallStatus | undefined, said: unknown): CallStatus {
  const status = typeof said === "string" && STATUSES.has(said) ? (said as CallStatus) : undefined;
  if (before === undefined) {
    return status ?? "pending";
  }
  if (status === undefined || (isOver(before) && !isOver(status))) {
    return before;
  }
  // The agent's final status outweighs what was assumed when the turn was cancelled.
  return before === "in_progress" && status === "pending" ? before : status;
}

function kindOf(kind: unknown): CallKind | undefined {
  if (kind === undefined || kind === null) {
    return undefined;
  }
  return typeof kind === "string" && KINDS.has(kind) ? (kind as CallKind) : "other";
}

function nameOf(update: ToolCall | ToolCallUpdate): string | undefined {
  const named = "name" in update && typeof update.name === "string" ? update.name : undefined;
  return named ?? textIn(update._meta, "tool_name");
}

/** `_meta.claudeCode.parentToolUseId` is what agents with sub-agents send. */
function parentOf(update: ToolCall | ToolCallUpdate): string | undefined {
  const claude = update._meta?.["claudeCode"];
  const parent = textIn(claude, "parentToolUseId") ?? textIn(update._meta, "parentToolCallId");
  return parent === update.toolCallId ? undefined : parent;
}

function textIn(value: unknown, key: string): string | undefined {
  const found = typeof value === "object" && value !== null ? (value as Record<string, unknown>)[key] : undefined;
  return typeof found === "string" && found !== "" ? found : undefined;
}
