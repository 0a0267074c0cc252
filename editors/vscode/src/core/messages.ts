/**
 * Messages between the chat view and the extension. Both are typed by this file and nothing else.
 *
 * The extension holds all state; the view draws it. After `ready` it gets one `state`, then `patch`es in order, at most
 * one per frame. A view that was hidden or reloaded sends `ready` again and gets a new `state`.
 */

import type { ElicitationSchema } from "@agentclientprotocol/sdk";

// --- what the view draws ------------------------------------------------------------------------------------------

export type AgentStatus = "stopped" | "starting" | "ready" | "failed";

/** A problem that keeps the user from working, in plain words, with what can be done about it. */
export interface Problem {
  readonly title: string;
  /** Markdown. */
  readonly detail: string;
  readonly actions: readonly ProblemAction[];
  /** It is nothing that went wrong, but what is to be done first. */
  readonly first?: boolean;
}

/** The card of the first start: a provider and its key, then a model. */
export interface StartFacts {
  readonly providers: readonly { readonly id: string; readonly detail: string; readonly hasKey: boolean }[];
  /** Of the provider that has its key now; null before. */
  readonly models: StartModels | null;
  readonly busy: boolean;
  readonly error: string;
}

export interface StartModels {
  readonly provider: string;
  /** Empty: the provider lists none, or could not be asked. */
  readonly names: readonly string[];
  /** Empty: the provider's own first one. */
  readonly chosen: string;
}

export interface ProblemAction {
  readonly label: string;
  /** A command of this extension, run unchanged. */
  readonly command: string;
  readonly argument?: string;
}

export type Item =
  | {
      readonly id: string;
      readonly type: "user";
      readonly text: string;
      readonly attachments: readonly ShownAttachment[];
      /** The agent's, where it was loaded. */
      readonly messageId?: string;
    }
  | { readonly id: string; readonly type: "agent"; readonly text: string }
  | { readonly id: string; readonly type: "thought"; readonly text: string }
  | { readonly id: string; readonly type: "image"; readonly mimeType: string; readonly data: string }
  | { readonly id: string; readonly type: "tool"; readonly toolCallId: string }
  | {
      readonly id: string;
      readonly type: "notice";
      readonly severity: "info" | "warning" | "error";
      readonly title: string;
      /** Markdown. */
      readonly text: string;
      /** What can be done: send the prompt that it is about again, or let the agent go on. */
      readonly offer?: "again" | "continue";
    };

export interface ShownAttachment {
  readonly kind: "file" | "selection" | "problems" | "text" | "image" | "resource";
  readonly label: string;
  /** A `data:` URL of an image. */
  readonly preview?: string;
  /** What a click opens. */
  readonly uri?: string;
}

export type ToolStatus = "pending" | "in_progress" | "completed" | "failed" | "cancelled";
export type ToolKind =
  | "read"
  | "edit"
  | "delete"
  | "move"
  | "search"
  | "execute"
  | "think"
  | "fetch"
  | "switch_mode"
  | "other";

export interface ToolCard {
  readonly toolCallId: string;
  readonly title: string;
  readonly kind: ToolKind;
  readonly status: ToolStatus;
  /** A sub-agent's call is shown below the call that made it. */
  readonly parentId?: string;
  /** Seconds; absent while it runs and for replayed calls. */
  readonly seconds?: number;
  readonly locations: readonly { readonly path: string; readonly label: string; readonly line?: number }[];
  readonly content: readonly ToolContent[];
  /** Exit code of a command, unless its terminal says it. */
  readonly exitCode?: number;
  /** `rawInput` as text, truncated. */
  readonly input?: string;
}

export type ToolContent =
  | { readonly type: "text"; readonly text: string; readonly truncated: boolean }
  | { readonly type: "image"; readonly mimeType: string; readonly data: string }
  | {
      readonly type: "diff";
      readonly index: number;
      readonly label: string;
      readonly added: number;
      readonly removed: number;
      readonly isNew: boolean;
      /** The first lines of the diff (`diffLines`), and how many follow. */
      readonly lines: readonly string[];
      readonly more: number;
    }
  | {
      readonly type: "terminal";
      readonly terminalId: string;
      /** The command line. */
      readonly title: string;
      /** The end of the output, without control sequences. */
      readonly tail: string;
      readonly exit?: string;
    };

export interface PlanEntry {
  readonly content: string;
  readonly priority: "high" | "medium" | "low";
  readonly status: "pending" | "in_progress" | "completed";
}

export interface Usage {
  /** Tokens in the context. */
  readonly used: number;
  readonly size: number;
  readonly cost?: { readonly amount: number; readonly currency: string };
}

export interface SlashCommand {
  readonly name: string;
  readonly description: string;
  readonly hint?: string;
}

/** Mode, model, thought level and whatever else the agent lets one choose. */
export interface Picker {
  readonly id: string;
  readonly name: string;
  readonly category: string;
  readonly description?: string;
  readonly value: string | boolean;
  /** Empty for a switch (`value` is a boolean). */
  readonly choices: readonly { readonly value: string; readonly name: string; readonly description?: string; readonly group?: string }[];
}

export interface Permission {
  readonly id: string;
  readonly toolCallId: string;
  readonly title: string;
  /** In the agent's order and wording. */
  readonly options: readonly {
    readonly optionId: string;
    readonly name: string;
    readonly kind: "allow_once" | "allow_always" | "reject_once" | "reject_always";
  }[];
  readonly hasDiff: boolean;
  readonly about: About;
  /** Its end has been in view, here or in the diff editor: it may be allowed. */
  readonly seen: boolean;
}

/** What a permission is asked for, whole. */
export interface About {
  /** The command, or whatever else would be done; empty if the diffs say it all. */
  readonly text: string;
  readonly diffs: readonly { readonly label: string; readonly path: string; readonly lines: readonly string[] }[];
  /** The reason in a sentence, the risk, and what an answer means besides. */
  readonly why: readonly string[];
  /** Behind "Why?": the reasons one by one, and the rules. */
  readonly more: readonly string[];
  /** False: it is too long to be shown whole here. */
  readonly whole: boolean;
}

export interface QueuedPrompt {
  readonly id: string;
  readonly text: string;
  /** Whether it may join the running turn. */
  readonly now: boolean;
}

export interface ChangedPath {
  readonly path: string;
  readonly label: string;
  readonly added: number;
  readonly removed: number;
  /** Programs make it again: no count has it. */
  readonly cache: boolean;
}

/** What can be taken back, where the agent can. */
export interface PromptFacts {
  /** The agent's numbers of the user's messages, by item. */
  readonly of: Readonly<Record<string, number>>;
  /** Whether a session can go on from an earlier prompt. */
  readonly fork: boolean;
  /** Whether the last restoring can be undone. */
  readonly redo: boolean;
}

/** What the agent asks by a form. */
export interface Form {
  readonly id: number;
  /** Empty: of none. */
  readonly sessionId: string;
  /** The title of its session, where several are open. */
  readonly from?: string;
  readonly message: string;
  /** Its fields; `null` for a web page to open, `url`. */
  readonly schema: ElicitationSchema | null;
  readonly url?: string;
}

export interface FormAnswer {
  readonly action: "accept" | "decline" | "cancel";
  readonly content?: Readonly<Record<string, FormValue>>;
}

export type FormValue = string | number | boolean | string[];

/** Everything except the conversation itself; a patch holds the changed fields. */
export interface ChatFacts {
  readonly agent: { readonly status: AgentStatus; readonly name: string };
  readonly problem: Problem | null;
  /** Known providers, while a key is needed and the agent can store one. */
  readonly start: StartFacts | null;
  readonly session: { readonly id: string; readonly title: string } | null;
  readonly loading: boolean;
  readonly running: boolean;
  readonly stopping: boolean;
  readonly plan: readonly PlanEntry[];
  /** The turn that the plan is of, and whether it still runs. */
  readonly planOf: { readonly turn: number; readonly runs: boolean };
  readonly usage: Usage | null;
  readonly commands: readonly SlashCommand[];
  readonly pickers: readonly Picker[];
  readonly permissions: readonly Permission[];
  /** How many questions wait, of all sessions. */
  readonly waiting: number;
  readonly form: Form | null;
  readonly queue: readonly QueuedPrompt[];
  readonly prompts: PromptFacts;
  /** What the last prompt changed and the user has not kept. */
  readonly changes: readonly ChangedPath[];
  /** Whether images may be pasted. */
  readonly images: boolean;
  readonly may: May;
}

/** What a server lets this client do; anything, where the agent does not say. */
export interface May {
  readonly prompt: boolean;
  /** Answer questions. */
  readonly answer: boolean;
}

export interface ChatState extends ChatFacts {
  readonly items: readonly Item[];
  readonly tools: readonly ToolCard[];
}

export type ItemChange =
  | { readonly op: "add"; readonly item: Item }
  /** Text appended to the item (agent or thought). */
  | { readonly op: "append"; readonly id: string; readonly text: string };

// --- messages -----------------------------------------------------------------------------------------------------

export interface Completion {
  /** The text to insert, without the `@` or `/`. */
  readonly insert: string;
  readonly label: string;
  readonly detail: string;
  /** Sent with the prompt if chosen. */
  readonly attachment?: Attachment;
}

export type Attachment =
  | { readonly kind: "file"; readonly uri: string; readonly label: string }
  | { readonly kind: "selection"; readonly uri: string; readonly label: string; readonly startLine: number; readonly endLine: number }
  | { readonly kind: "problems"; readonly label: string }
  /** A web page, which the agent reads. */
  | { readonly kind: "page"; readonly uri: string; readonly label: string }
  /** Another session, as a text. */
  | { readonly kind: "session"; readonly sessionId: string; readonly label: string }
  | { readonly kind: "text"; readonly label: string; readonly text: string }
  | { readonly kind: "image"; readonly label: string; readonly mimeType: string; readonly data: string };

export type ToView =
  | { readonly type: "state"; readonly state: ChatState }
  | {
      readonly type: "patch";
      readonly facts: Partial<ChatFacts>;
      readonly items: readonly ItemChange[];
      /** Cards that are new or changed, complete. */
      readonly tools: readonly ToolCard[];
    }
  | { readonly type: "completions"; readonly request: number; readonly entries: readonly Completion[] }
  /** Puts text and attachments into the input box. */
  | { readonly type: "compose"; readonly text: string; readonly attachments: readonly Attachment[] }
  /** Scrolls to a tool's card and opens it. */
  | { readonly type: "reveal"; readonly toolCallId: string }
  /** Puts the keyboard into the input box, or into the question that waits. */
  | { readonly type: "focus"; readonly question?: boolean };

export type FromView =
  | { readonly type: "ready" }
  | { readonly type: "send"; readonly text: string; readonly attachments: readonly Attachment[] }
  | { readonly type: "stop" }
  /** Sends the prompt that failed once more. */
  | { readonly type: "again" }
  | { readonly type: "unqueue"; readonly id: string }
  /** Lets a queued prompt join the running turn. */
  | { readonly type: "steer"; readonly id: string }
  /** The end of what a question is about has been in view. */
  | { readonly type: "seen"; readonly id: string }
  | { readonly type: "permission"; readonly id: string; readonly optionId: string; /** What to do instead, for the model. */ readonly reason?: string }
  | { readonly type: "form"; readonly id: number; readonly answer: FormAnswer }
  | { readonly type: "pick"; readonly id: string; readonly value: string | boolean }
  /** `@` entries for what was typed after it. `/` is completed by the view itself, from `commands`. */
  | { readonly type: "complete"; readonly request: number; readonly query: string }
  | { readonly type: "openLocation"; readonly path: string; readonly line?: number }
  | { readonly type: "openDiff"; readonly toolCallId: string; readonly index: number }
  | { readonly type: "openOutput"; readonly toolCallId: string }
  | { readonly type: "openTerminal"; readonly terminalId: string }
  | { readonly type: "openLink"; readonly href: string }
  /** To before the prompt with this number of the agent's, or a new session from there. */
  | { readonly type: "restore" | "fork"; readonly prompt: number }
  /** What the last prompt changed, or one file of it. */
  | { readonly type: "change"; readonly act: "review" | "keep" | "undo"; readonly path?: string }
  /** Shows the choices of a picker where they can be searched. */
  | { readonly type: "choose"; readonly id: string }
  /** Code of an answer, at the cursor of the editor. */
  | { readonly type: "insert"; readonly text: string }
  /** Closes the problem that is shown. */
  | { readonly type: "dismiss" }
  /** A provider and its key (empty: it has one), from the card of the first start. */
  | { readonly type: "start"; readonly provider: string; readonly key: string }
  /** Then its model: from a list that can be searched; the start with it; or another provider. */
  | { readonly type: "startModel" | "startAgain" }
  | { readonly type: "startWith"; readonly model: string }
  | { readonly type: "command"; readonly command: string; readonly argument?: string };
