/** Short messages between parts of the view that do not know each other. */
import type { Attachment, Completion } from "../core/messages";

export interface Signals {
  /** The user sent something. */
  readonly sent: undefined;
  /** A tool's card is about to be scrolled to. */
  readonly reveal: undefined;
  /** These folds were opened, by another hand than the user's. */
  readonly unfolded: readonly string[];
  /** The box where the user writes gets the cursor. */
  readonly focus: undefined;
  readonly compose: { readonly text: string; readonly attachments: readonly Attachment[] };
  readonly completions: { readonly request: number; readonly entries: readonly Completion[] };
}

type Listener<Name extends keyof Signals> = (value: Signals[Name]) => void;

export class Bus {
  private readonly listeners: { [Name in keyof Signals]: Set<Listener<Name>> } = {
    sent: new Set(),
    reveal: new Set(),
    unfolded: new Set(),
    focus: new Set(),
    compose: new Set(),
    completions: new Set(),
  };

  on<Name extends keyof Signals>(name: Name, listener: Listener<Name>): () => void {
    this.listeners[name].add(listener);
    return () => {
      this.listeners[name].delete(listener);
    };
  }

  /** Whether somebody listens. */
  hears(name: keyof Signals): boolean {
    return this.listeners[name].size > 0;
  }

  emit<Name extends keyof Signals>(name: Name, value: Signals[Name]): void {
    for (const listener of [...this.listeners[name]]) listener(value);
  }
}
