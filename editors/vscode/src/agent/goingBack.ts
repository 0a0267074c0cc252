import { sentAgain } from "../core/contentBlocks.js";
import type { Attachment } from "../core/messages.js";
import type { What } from "../core/undo.js";
import type { UndoResponse } from "../core/undoMethods.js";
import { short } from "../core/words.js";
import type { AgentHost } from "./host.js";
import type { Session } from "./session.js";
import type { Target, Undo } from "./undo.js";

/** How the user is asked and told, in a window of VS Code or a browser. */
export interface GoingBackSide {
  /** `undefined`: nothing. */
  pickWhat(title: string): Promise<What | undefined>;
  /** Shows what would happen. Whether to merge; `undefined`: not to do it. */
  confirm(outcome: UndoResponse, verb: string, title: string): Promise<boolean | undefined>;
  tell(outcome: UndoResponse): void;
  compose(text: string, attachments: readonly Attachment[]): Promise<void> | void;
}

/** Takes back what the agent did: shows what would happen, asks once, and does it. */
export class GoingBack {
  constructor(
    private readonly host: AgentHost,
    private readonly undo: Undo,
    private readonly side: GoingBackSide,
  ) {}

  /** To before a prompt: files, conversation or both. */
  async restore(prompt: number): Promise<void> {
    const session = this.session();
    const what = await this.side.pickWhat(this.titleOf(prompt));
    const written = this.writtenAs(prompt);
    if (what === undefined) {
      return;
    }
    const done = await this.confirmed(session, [{ to: prompt, what }], "Restore", `Restore to before “${this.titleOf(prompt)}”`);
    if (done && what !== "files" && written !== undefined) {
      await this.side.compose(written.text, written.attachments);
    }
  }

  /** What the last prompt changed, without what the user keeps of it; the chat stays. */
  async takeBack(): Promise<void> {
    const { targets, now } = this.undo;
    if (now.last !== undefined && targets.length > 0) {
      await this.confirmed(this.session(), targets, "Undo", `Undo what “${this.titleOf(now.last.prompt)}” changed`);
    }
  }

  async redo(): Promise<void> {
    await this.confirmed(this.session(), ["redo"], "Redo", "Redo what was taken back");
  }

  /** A new session that goes on from before a prompt, with that prompt in the box. */
  async fork(prompt: number): Promise<void> {
    const written = this.writtenAs(prompt);
    await this.host.fork(this.session(), prompt);
    await this.side.compose(written?.text ?? "", written?.attachments ?? []);
  }

  /** Shows what would happen, and asks. Returns whether it was done. */
  private async confirmed(session: Session, targets: readonly Target[], verb: string, title: string): Promise<boolean> {
    const previews: UndoResponse[] = [];
    for (const target of targets) {
      previews.push(await this.undo.preview(session, target));
    }
    const merge = await this.side.confirm(inOne(previews), verb, title);
    if (merge === undefined) {
      return false;
    }
    const outcomes: UndoResponse[] = [];
    for (const target of targets) {
      outcomes.push(await this.undo.run(session, target, merge));
    }
    const outcome = inOne(outcomes);
    this.side.tell(outcome);
    return outcome.done;
  }

  session(): Session {
    const { active } = this.host;
    if (active === undefined || !this.undo.available) {
      throw new Error(`${this.host.name} cannot take back changes.`);
    }
    return active;
  }

  private titleOf(prompt: number): string {
    const title = this.undo.now.checkpoints.checkpoints.find((checkpoint) => checkpoint.prompt === prompt)?.title ?? "";
    return title === "" ? `prompt ${String(prompt)}` : short(title, 60);
  }

  private writtenAs(prompt: number): { readonly text: string; readonly attachments: readonly Attachment[] } | undefined {
    const { of } = this.undo.facts;
    const item = this.host.active?.transcript.items.find(({ id }) => of[id] === prompt);
    return item?.type === "user" ? { text: item.text, attachments: item.attachments.flatMap(sentAgain) } : undefined;
  }
}

function inOne(outcomes: readonly UndoResponse[]): UndoResponse {
  return {
    changes: outcomes.flatMap(({ changes }) => changes),
    conflicts: outcomes.flatMap(({ conflicts }) => conflicts),
    done: outcomes.some(({ done }) => done),
    words: [...new Set(outcomes.map(({ words }) => words))].filter((words) => words !== "").join(" "),
  };
}
