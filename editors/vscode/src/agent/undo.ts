import { Emitter } from "../core/emitter.js";
import { Later } from "../core/later.js";
import type { PromptFacts } from "../core/messages.js";
import type { ToolCalls } from "../core/toolCalls.js";
import { isOver } from "../core/toolCalls.js";
import { cutsOf, hasUndo, Kept, promptsOf } from "../core/undo.js";
import type { ChangesResponse, CheckpointsResponse, UndoChange, UndoCheckpoint, UndoHunk, UndoRequest, UndoResponse } from "../core/undoMethods.js";
import { readChangesResponse, readCheckpointsResponse, readUndoResponse } from "../core/undoMethods.js";
import { messageOf } from "../core/words.js";
import type { AgentHost } from "./host.js";
import type { AgentLink } from "./link.js";
import { INVALID_PARAMS } from "./link.js";
import type { Session } from "./session.js";

/** Milliseconds in which tool calls that end lead to one look at the changes. */
const REFRESH = 300;

/** What is taken back: a prompt and all after it, a call, or a file, or some of its hunks. */
export type Target = Omit<UndoRequest, "sessionId" | "dryRun" | "merge"> | "redo";

export interface Undoable {
  readonly checkpoints: CheckpointsResponse;
  /** The numbers of the chat's messages. */
  readonly of: PromptFacts["of"];
  /** The last prompt that was not taken back, and what was changed since before it; and since the first. */
  readonly last: UndoCheckpoint | undefined;
  readonly turn: ChangesResponse;
  readonly session: ChangesResponse;
}

/** What the user keeps of the changes of sessions (`Kept`). */
export interface KeptMemory {
  read(sessionId: string): readonly string[];
  write(sessionId: string, keys: readonly string[]): void;
}

const NO_CHANGES: ChangesResponse = { changes: [], notCovered: [] };
const NOTHING: Undoable = { checkpoints: { checkpoints: [], redo: false }, of: {}, last: undefined, turn: NO_CHANGES, session: NO_CHANGES };

/** What the agent can take back in the active session: looked at when a turn or a tool call ends, while it is shown. */
export class Undo {
  readonly changed = new Emitter<void>();
  /** Something was taken back, or came back: these files are other than the calls left them. */
  readonly undone = new Emitter<readonly string[]>();
  /** Whether someone looks at all changes, also while the agent works. */
  watched = false;
  /** Whether what a prompt changed is shown once its turn is over. */
  reviews = false;
  /** Where what the user keeps outlives this window or page, by session. */
  memory: KeptMemory | undefined;
  private readonly known = new WeakMap<Session, Undoable>();
  private readonly kept = new Map<string, Kept>();
  private looking: Promise<void> | undefined;
  /** The session in which something was taken back here, and after which turn. */
  private back: { readonly session: Session | undefined; readonly turn: number | undefined } | undefined;
  private readonly later = new Later(REFRESH, () => {
    this.look().catch(() => undefined);
  });

  constructor(
    private readonly host: AgentHost,
    calls: ToolCalls,
    private readonly log: (text: string) => void,
  ) {
    host.changed.on((change) => {
      const ofTurn = change.kind === "session" && (change.change.reset || change.change.facts.has("running"));
      if (change.kind === "agent" || change.kind === "active" || ofTurn) {
        this.soon();
      }
    });
    calls.changed.on(({ record, before }) => {
      if (this.watched && isOver(record.status) && before !== undefined && !isOver(before.status) && !record.replayed) {
        this.soon();
      }
    });
  }

  dispose(): void {
    this.later.dispose();
  }

  get available(): boolean {
    return hasUndo(this.host.capabilities._meta);
  }

  /** Of the active session. */
  get now(): Undoable {
    return (this.host.active && this.known.get(this.host.active)) ?? NOTHING;
  }

  /** What the last prompt changed and the user has not kept yet. */
  get left(): readonly UndoChange[] {
    return this.now.turn.changes.filter((change) => this.keeps.left(change).any);
  }

  get keeps(): Kept {
    const id = this.host.active?.id ?? "";
    let kept = this.kept.get(id);
    if (kept === undefined) {
      kept = new Kept(this.memory?.read(id), (keys) => {
        this.memory?.write(id, keys);
      });
      this.kept.set(id, kept);
    }
    return kept;
  }

  /** What takes a change since a prompt back, or one hunk of it: what the user keeps of it stays. */
  targetOf(change: UndoChange, since: number, hunk?: UndoHunk): Target {
    const hunks = hunk === undefined ? this.keeps.left(change).hunks : [hunk];
    const isPart = hunks.length > 0 && (hunk !== undefined || hunks.length < change.hunks.length);
    const part = isPart ? { hunks: hunks.map((each) => change.hunks.indexOf(each)), expect: hunks.map(({ id }) => id) } : {};
    return { path: change.path, since, ...part };
  }

  /** What takes back all that is left of the last prompt's changes. */
  get targets(): readonly Target[] {
    const { last, turn } = this.now;
    if (last === undefined) {
      return [];
    }
    const isWhole = turn.changes.every((change) => {
      const { any, hunks } = this.keeps.left(change);
      return any && hunks.length === change.hunks.length;
    });
    return isWhole ? [{ to: last.prompt, what: "files" }] : this.left.map((change) => this.targetOf(change, last.prompt));
  }

  get facts(): PromptFacts {
    const { of, checkpoints } = this.now;
    const { fork } = (this.host.capabilities.sessionCapabilities ?? {}) as { readonly fork?: unknown };
    return { of, fork: (fork ?? null) !== null, redo: checkpoints.redo && this.isFresh };
  }

  private get isFresh(): boolean {
    const { active } = this.host;
    return active !== undefined && this.back?.session === active && this.back.turn === active.turn;
  }

  soon(): void {
    this.later.soon();
  }

  /** Asks the agent anew; one look at a time. */
  async look(): Promise<void> {
    while (this.looking !== undefined) {
      await this.looking;
    }
    this.looking = this.ask().finally(() => {
      this.looking = undefined;
    });
    await this.looking;
  }

  private async ask(): Promise<void> {
    const { active, running } = this.host;
    // Before its first prompt a session has nothing, and the agent would prepare itself for the question.
    const isNew = active?.turn === 0 && this.back?.session !== active;
    // While a turn runs nothing can be taken back: only who looks at the changes wants to know.
    const isLater = active?.working === true && !this.watched;
    if (running === undefined || active === undefined || active.loading || isNew || isLater || !this.available) {
      this.changed.fire();
      return;
    }
    try {
      const params = { sessionId: active.id };
      const checkpoints = readCheckpointsResponse(await running.extension("_session/checkpoints", params));
      const last = checkpoints.checkpoints.filter(({ undone, cut }) => !undone && !cut).at(-1);
      const before = this.known.get(active);
      if (before !== undefined && cutsOf(before.checkpoints) !== cutsOf(checkpoints) && !active.working) {
        await this.shown(active);
        return;
      }
      let { turn, session } = before ?? NOTHING;
      const isFirst = last === undefined || last.prompt === checkpoints.checkpoints[0]?.prompt;
      if (this.watched) {
        session = readChangesResponse(await running.extension("_session/changes", params));
      }
      if (this.watched || this.reviews) {
        turn = this.watched && isFirst ? session : readChangesResponse(await running.extension("_session/changes", { ...params, since: last?.prompt ?? 0 }));
      }
      this.known.set(active, { checkpoints, of: promptsOf(active.transcript.items, checkpoints.checkpoints), last, turn, session });
    } catch (error) {
      this.log(`The changes of the session could not be asked for: ${messageOf(error)}`);
    }
    this.changed.fire();
  }

  /** Some messages were taken back, or came back: the conversation is loaded anew, and looked at. */
  private async shown(session: Session): Promise<void> {
    const isBack = this.back?.session === session;
    this.known.delete(session);
    try {
      await this.host.reload(session);
    } catch (error) {
      session.note("warning", "Messages that were taken back are still shown: the chat could not be loaded anew.", messageOf(error));
    }
    if (isBack) {
      this.noteBack();
    }
    if (this.host.active !== session) {
      await this.ask();
    }
  }

  private noteBack(session = this.host.active): void {
    this.back = { session, turn: session?.turn };
  }

  /** What would happen. */
  async preview(session: Session, target: Target): Promise<UndoResponse> {
    return await this.call(session, target, { dryRun: true });
  }

  /** Does it, with the user's own changes merged where `merge`. */
  async run(session: Session, target: Target, merge = false): Promise<UndoResponse> {
    const outcome = await this.call(session, target, merge ? { merge: true } : {});
    // Another session may be the active one by now: the question may have been open for long.
    this.noteBack(this.host.session(session.id) ?? session);
    if (outcome.done) {
      this.undone.fire(outcome.changes.map(({ path }) => path));
    }
    await this.look();
    return outcome;
  }

  private async call(session: Session, target: Target, more: object): Promise<UndoResponse> {
    if (session.working) {
      throw Object.assign(new Error("The agent is working: stop it first."), { code: INVALID_PARAMS });
    }
    const params = { sessionId: session.id, ...more };
    return readUndoResponse(await (target === "redo" ? this.link().extension("_session/redo", params) : this.link().extension("_session/undo", { ...params, ...target })));
  }

  private link(): AgentLink {
    if (this.host.running === undefined) {
      throw new Error("The agent is not running.");
    }
    return this.host.running;
  }
}
