/**
 * State that outlives the view when it is hidden, moved or reloaded: the draft, open folds, the scroll position.
 *
 * The user's input is saved immediately: a reloading window leaves no time for it. VS Code sends the whole value to
 * another process each time, so everything else, and a draft with pictures, is written a moment after the last
 * change and when the view is hidden.
 */
import type { Attachment } from "../core/messages";

export interface Place {
  readonly session: string;
  /** The topmost item in view. */
  readonly item: string;
  /** Distance of its top edge below that of the view, in pixels. */
  readonly offset: number;
}

export interface Kept {
  readonly text: string;
  readonly attachments: readonly Attachment[];
  /** What was opened or closed by hand, by key. */
  readonly open: Readonly<Record<string, boolean>>;
  /** The session that `open` and `place` belong to. */
  readonly session?: string | undefined;
  /** Absent at the end of the conversation. */
  readonly place?: Place | undefined;
}

/** VS Code's own three functions for a webview. */
export interface ViewApi {
  postMessage(message: unknown): void;
  getState(): unknown;
  setState(state: unknown): void;
}

const EMPTY: Kept = { text: "", attachments: [], open: {} };
const WAIT_MS = 150;
/** More than this many folds are not remembered; the oldest go first. */
const MOST_OPEN = 400;

export class Memory {
  private kept: Kept;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly api: Pick<ViewApi, "getState" | "setState">) {
    const stored = api.getState();
    this.kept = isKept(stored) ? { ...EMPTY, ...stored } : EMPTY;
  }

  get(): Kept {
    return this.kept;
  }

  set(change: Partial<Kept>): void {
    this.kept = { ...this.kept, ...change };
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.flush();
    }, WAIT_MS);
    const isDraft = change.text !== undefined || change.attachments !== undefined;
    if (isDraft && !this.kept.attachments.some(({ kind }) => kind === "image")) this.flush();
  }

  /** Forgets what belonged to another session. A session that only now got its id stays the same. */
  enter(session: string | undefined): void {
    if (session === undefined || session === this.kept.session) return;
    this.set(this.kept.session === undefined ? { session } : { session, open: {}, place: undefined });
  }

  setOpen(key: string, open: boolean): void {
    const others = Object.entries(this.kept.open).filter(([other]) => other !== key);
    this.set({ open: Object.fromEntries([...others.slice(1 - MOST_OPEN), [key, open]]) });
  }

  /** Writes pending changes now. */
  flush(): void {
    if (this.timer === undefined) return;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.api.setState(this.kept);
  }
}

function isKept(value: unknown): value is Kept {
  if (typeof value !== "object" || value === null) return false;
  const kept = value as Partial<Record<keyof Kept, unknown>>;
  return (
    typeof kept.text === "string" && Array.isArray(kept.attachments) && typeof kept.open === "object" && kept.open !== null
  );
}
