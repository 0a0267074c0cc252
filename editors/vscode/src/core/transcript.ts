import type {
  AvailableCommand,
  ContentBlock,
  SessionConfigOption,
  SessionModeState,
  SessionUpdate,
} from "@agentclientprotocol/sdk";
import type { Item, ItemChange, PlanEntry, ShownAttachment, Usage } from "./messages.js";
import { markdownOf } from "./contentBlocks.js";
import { labelOfUri } from "./uris.js";
import { short } from "./words.js";

export type Facts = "title" | "plan" | "usage" | "commands" | "modes" | "options";

export interface TranscriptChange {
  readonly items: readonly ItemChange[];
  readonly facts: ReadonlySet<Facts>;
}

/** The conversation of one session as built from `session/update`s, and what the agent reports about the session. */
export class Transcript {
  readonly items: Item[] = [];
  title = "";
  plan: readonly PlanEntry[] = [];
  usage: Usage | null = null;
  commands: readonly AvailableCommand[] = [];
  modes: SessionModeState | null = null;
  options: readonly SessionConfigOption[] = [];
  private lastId = 0;
  private lastMessage: string | undefined;
  private readonly shownCalls = new Set<string>();

  /** `isNested`: whether the update's tool call belongs to another one and is not an item itself. */
  apply(update: SessionUpdate, isNested: (toolCallId: string) => boolean): TranscriptChange {
    switch (update.sessionUpdate) {
      case "user_message_chunk":
        return this.changed(this.user([update.content], update.messageId ?? undefined));
      case "agent_message_chunk":
        return this.changed(this.said("agent", update.content, update.messageId ?? undefined));
      case "agent_thought_chunk":
        return this.changed(this.said("thought", update.content, update.messageId ?? undefined));
      case "tool_call":
      case "tool_call_update":
        return this.changed(this.call(update.toolCallId, isNested(update.toolCallId)));
      case "plan":
        this.plan = update.entries.map(({ content, priority, status }) => ({ content, priority, status }));
        return this.fact("plan");
      case "usage_update": {
        const cost = update.cost ?? undefined;
        this.usage = { used: update.used, size: update.size, ...(cost ? { cost: { amount: cost.amount, currency: cost.currency } } : {}) };
        return this.fact("usage");
      }
      case "available_commands_update":
        this.commands = update.availableCommands;
        return this.fact("commands");
      case "current_mode_update":
        if (this.modes !== null) {
          this.modes = { ...this.modes, currentModeId: update.currentModeId };
        }
        return this.fact("modes");
      case "config_option_update":
        this.options = update.configOptions;
        return this.fact("options");
      case "session_info_update":
        if (update.title !== undefined) {
          this.title = update.title ?? "";
        }
        return this.fact("title");
      case "notice":
        return this.changed([this.notice(update.severity, update.title, update.description ?? "")]);
      case "compaction_update":
        return this.changed(this.compaction(update.status, update.error ?? ""));
      default:
        // `compaction_summary_chunk` is for the model; unknown updates of newer agents are not shown.
        return this.changed([]);
    }
  }

  /** What the user sent; ends the message before it. */
  user(blocks: readonly ContentBlock[], messageId?: string): ItemChange[] {
    const last = this.items.at(-1);
    const text = blocks.map((block) => (block.type === "text" ? block.text : "")).join("");
    const attachments = blocks.flatMap((block) => attachmentOf(block) ?? []);
    if (messageId !== undefined && last?.type === "user" && this.lastMessage === messageId) {
      // Only `session/load` sends a user's message in chunks; the view gets it when it is complete.
      this.items[this.items.length - 1] = { ...last, text: last.text + text, attachments: [...last.attachments, ...attachments] };
      return [];
    }
    this.lastMessage = messageId;
    if (this.title === "" && text.trim() !== "") {
      this.title = short(text, 60);
    }
    return [this.add({ id: this.nextId(), type: "user", text, attachments, ...(messageId === undefined ? {} : { messageId }) })];
  }

  notice(severity: string, title: string, text: string, offer?: "again" | "continue"): ItemChange {
    this.lastMessage = undefined;
    const known = severity === "warning" || severity === "error" ? severity : "info";
    return this.add({ id: this.nextId(), type: "notice", severity: known, title, text, ...(offer === undefined ? {} : { offer }) });
  }

  private said(type: "agent" | "thought", content: ContentBlock, messageId: string | undefined): ItemChange[] {
    if (content.type === "image") {
      return [this.add({ id: this.nextId(), type: "image", mimeType: content.mimeType, data: content.data })];
    }
    const text = markdownOf(content);
    if (text === "") {
      return [];
    }
    const last = this.items.at(-1);
    const goesOn = last?.type === type && (messageId === undefined || messageId === this.lastMessage);
    this.lastMessage = messageId;
    if (goesOn) {
      this.items[this.items.length - 1] = { ...last, text: last.text + text };
      return [{ op: "append", id: last.id, text }];
    }
    return [this.add({ id: this.nextId(), type, text })];
  }

  private call(toolCallId: string, nested: boolean): ItemChange[] {
    if (nested || this.shownCalls.has(toolCallId)) {
      return [];
    }
    this.shownCalls.add(toolCallId);
    this.lastMessage = undefined;
    return [this.add({ id: this.nextId(), type: "tool", toolCallId })];
  }

  private compaction(status: string, error: string): ItemChange[] {
    if (status === "completed") {
      return [this.notice("info", "Earlier messages were summarised to make room.", "")];
    }
    return status === "failed" ? [this.notice("warning", "Earlier messages could not be summarised.", error)] : [];
  }

  private add(item: Item): ItemChange {
    this.items.push(item);
    return { op: "add", item };
  }

  private nextId(): string {
    this.lastId += 1;
    return String(this.lastId);
  }

  private changed(items: readonly ItemChange[]): TranscriptChange {
    return { items, facts: new Set() };
  }

  private fact(fact: Facts): TranscriptChange {
    return { items: [], facts: new Set([fact]) };
  }
}

function attachmentOf(block: ContentBlock): ShownAttachment | undefined {
  switch (block.type) {
    case "image":
      return { kind: "image", label: "Image", preview: `data:${block.mimeType};base64,${block.data}` };
    case "resource_link":
      return { kind: "file", label: block.title ?? block.name, uri: block.uri };
    case "resource":
      return { kind: "resource", label: labelOfUri(block.resource.uri), uri: block.resource.uri };
    case "audio":
      return { kind: "resource", label: "Audio" };
    case "text":
      return undefined;
  }
}
