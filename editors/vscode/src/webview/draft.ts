/** The prompt being written, which outlives the view, and earlier ones, which Up brings back. */
import { useState } from "preact/hooks";
import type { Attachment } from "../core/messages";
import { useView } from "./context";
import type { Store } from "./store";

export interface Draft {
  readonly text: string;
  readonly attachments: readonly Attachment[];
}

export function useDraft(): readonly [Draft, (change: Partial<Draft>) => void] {
  const { memory } = useView();
  const [, redraw] = useState(0);
  const { text, attachments } = memory.get();
  const set = (change: Partial<Draft>): void => {
    memory.set(change);
    redraw((count) => count + 1);
  };
  return [{ text, attachments }, set];
}

/** What the user sent in this conversation, the latest first, without repetitions in a row. */
export function sentBefore(store: Store): readonly string[] {
  const texts: string[] = [];
  for (const item of store.allItems()) if (item.type === "user") texts.push(item.text);
  texts.push(...store.facts.queue.map(({ text }) => text));
  return texts.filter((text, index) => text.trim() !== "" && text !== texts[index - 1]).reverse();
}

/** Steps through earlier prompts, as in a shell. It forgets its position as soon as the text differs. */
export class Recall {
  private at = -1;
  private shown: string | null = null;

  constructor(private readonly store: Store) {}

  /** The text further back, or null if Up means the cursor here. */
  back(text: string): string | null {
    if (text !== "" && text !== this.shown) return null;
    return this.step(text === "" ? 0 : this.at + 1);
  }

  /** The text less far back; empty after the latest; null if Down means the cursor here. */
  forth(text: string): string | null {
    if (this.shown === null || text !== this.shown) return null;
    if (this.at > 0) return this.step(this.at - 1);
    this.at = -1;
    this.shown = null;
    return "";
  }

  private step(to: number): string | null {
    const text = sentBefore(this.store)[to];
    if (text === undefined) return null;
    this.at = to;
    this.shown = text;
    return text;
  }
}
