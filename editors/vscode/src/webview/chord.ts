/** Milliseconds in which VS Code waits for the second key of a chord. */
const PATIENCE = 5_000;

/**
 * VS Code receives all key presses in the view, and so does the input box: the second key of a chord (Ctrl+K, then Y)
 * is not meant as text.
 */
export class Chord {
  private since = -Infinity;

  constructor(private readonly now: () => number = () => performance.now()) {}

  /** Whether the key belongs to a chord that was begun. */
  takes({ key, ctrlKey, metaKey }: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey">): boolean {
    if (["Control", "Meta", "Shift", "Alt"].includes(key)) return false;
    const begun = this.now() - this.since < PATIENCE;
    this.since = !begun && (ctrlKey || metaKey) && key.toLowerCase() === "k" ? this.now() : -Infinity;
    return begun;
  }
}
