/** The lines above which something stands that takes room: none comes or goes where that would move the text under the user's cursor. */
import type { LineEdit } from "./lines.js";
import { lineAfter } from "./lines.js";

export interface Held<T> {
  readonly line: number;
  readonly what: T;
}

export class HeldLines<T> {
  private shown: readonly Held<T>[] = [];
  /** Whether something waits until the user is elsewhere. */
  waits = false;

  /** What stands now, of what should. `mayMove`: whether room above this line may come or go. */
  settle(wanted: ReadonlyMap<number, T>, mayMove: (line: number) => boolean): readonly Held<T>[] {
    const before = new Map(this.shown.map(({ line, what }) => [line, what]));
    const placed = [...wanted].filter(([line]) => before.has(line) || mayMove(line));
    const left = [...before].filter(([line]) => !wanted.has(line) && !mayMove(line));
    this.waits = placed.length < wanted.size || left.length > 0;
    this.shown = [...placed, ...left].map(([line, what]) => ({ line, what }));
    return this.shown;
  }

  edited(edits: readonly LineEdit[]): void {
    this.shown = this.shown.map(({ line, what }) => ({ line: edits.reduce(lineAfter, line), what }));
  }

  clear(): void {
    this.shown = [];
    this.waits = false;
  }
}
