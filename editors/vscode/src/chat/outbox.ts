import type { ChatFacts, ItemChange, ToolCard, ToView } from "../core/messages.js";

/** Milliseconds between two patches: one frame. */
const FRAME = 16;

/**
 * Changes for the view, merged into one patch per frame: consecutive text is joined, a tool call that changed five
 * times is sent once, in its current state.
 */
export class Outbox {
  private facts = new Set<keyof ChatFacts>();
  private items: ItemChange[] = [];
  private tools = new Set<string>();
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly source: {
      readonly facts: (keys: ReadonlySet<keyof ChatFacts>) => Partial<ChatFacts>;
      readonly tool: (toolCallId: string) => ToolCard | undefined;
      readonly post: (message: ToView) => void;
    },
  ) {}

  fact(...keys: (keyof ChatFacts)[]): void {
    for (const key of keys) {
      this.facts.add(key);
    }
    this.soon();
  }

  item(change: ItemChange): void {
    const last = this.items.at(-1);
    if (change.op === "append" && last?.op === "append" && last.id === change.id) {
      this.items[this.items.length - 1] = { ...last, text: last.text + change.text };
    } else {
      this.items.push(change);
    }
    this.soon();
  }

  tool(toolCallId: string): void {
    this.tools.add(toolCallId);
    this.soon();
  }

  /** Drops pending changes: the view gets its whole state. */
  clear(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.facts = new Set();
    this.items = [];
    this.tools = new Set();
  }

  private soon(): void {
    this.timer ??= setTimeout(() => {
      this.flush();
    }, FRAME);
  }

  flush(): void {
    const { facts, items, tools } = this;
    this.clear();
    if (facts.size + items.length + tools.size > 0) {
      this.source.post({
        type: "patch",
        facts: this.source.facts(facts),
        items,
        tools: [...tools].flatMap((id) => this.source.tool(id) ?? []),
      });
    }
  }
}
