/**
 * The view's data of the conversation, organised so that a change affects only what it concerns.
 *
 * Messages are applied immediately; listeners are notified once per frame. Each item and each card has its own
 * topic, so a delta redraws one message and a finished call one card, however long the conversation. No drawing here.
 */
import type { ChatFacts, ChatState, Item, ToolCard, ToView } from "../core/messages";

export type Topic = `fact:${keyof ChatFacts}` | "items" | `item:${string}` | `tool:${string}`;

/** Items are listed in runs of this many, so that a new one is not compared with all previous ones. */
const CHUNK = 40;

const NOTHING: ChatFacts = {
  agent: { status: "stopped", name: "Agent" },
  problem: null,
  start: null,
  session: null,
  loading: true,
  running: false,
  stopping: false,
  plan: [],
  planOf: { turn: 0, runs: false },
  usage: null,
  commands: [],
  pickers: [],
  permissions: [],
  waiting: 0,
  form: null,
  queue: [],
  prompts: { of: {}, fork: false, redo: false },
  changes: [],
  images: false,
  may: { prompt: true, answer: true },
};

type Patch = Extract<ToView, { type: "patch" }>;

export class Store {
  facts: ChatFacts = NOTHING;
  /** Ids in order, in runs that are replaced only when something is added to them. */
  chunks: readonly (readonly string[])[] = [];
  /** Counts the states received, so that holders of data from an older conversation notice the change. */
  generation = 0;

  private readonly items = new Map<string, Item>();
  private readonly cards = new Map<string, ToolCard>();
  private readonly below = new Map<string, readonly string[]>();
  private readonly listeners = new Map<Topic, Set<() => void>>();
  private readonly changed = new Set<Topic>();
  private scheduled = false;

  constructor(private readonly nextFrame: (run: () => void) => void) {}

  item(id: string): Item | undefined {
    return this.items.get(id);
  }

  tool(id: string): ToolCard | undefined {
    return this.cards.get(id);
  }

  /** The calls that a sub-agent made, in the order in which they came. */
  children(id: string): readonly string[] {
    return this.below.get(id) ?? [];
  }

  lastItem(): Item | undefined {
    const id = this.chunks.at(-1)?.at(-1);
    return id === undefined ? undefined : this.items.get(id);
  }

  *allItems(): Generator<Item> {
    for (const chunk of this.chunks) {
      for (const id of chunk) {
        const item = this.items.get(id);
        if (item) yield item;
      }
    }
  }

  /** `listener` is called after the frame's changes to `topic`. Returns the function that unsubscribes. */
  subscribe(topic: Topic, listener: () => void): () => void {
    const listeners = this.listeners.get(topic) ?? new Set();
    this.listeners.set(topic, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.listeners.get(topic) === listeners) this.listeners.delete(topic);
    };
  }

  replace(state: ChatState): void {
    const { items, tools, ...facts } = state;
    for (const id of this.items.keys()) this.touch(`item:${id}`);
    for (const id of this.cards.keys()) this.touch(`tool:${id}`);
    this.items.clear();
    this.cards.clear();
    this.below.clear();
    this.chunks = [];
    this.generation += 1;
    this.setFacts(facts);
    this.touch("items");
    for (const card of tools) this.putCard(card);
    for (const item of items) this.putItem(item);
  }

  patch(patch: Patch): void {
    this.setFacts(patch.facts);
    for (const card of patch.tools) this.putCard(card);
    for (const change of patch.items) {
      if (change.op === "add") this.putItem(change.item);
      else this.append(change.id, change.text);
    }
  }

  private setFacts(change: Partial<ChatFacts>): void {
    const before = this.facts;
    this.facts = { ...before, ...change };
    for (const name of Object.keys(this.facts) as (keyof ChatFacts)[]) {
      if (this.facts[name] !== before[name]) this.touch(`fact:${name}`);
    }
  }

  private append(id: string, text: string): void {
    const item = this.items.get(id);
    if (item?.type !== "agent" && item?.type !== "thought") return;
    this.items.set(id, { ...item, text: item.text + text });
    this.touch(`item:${id}`);
  }

  private putItem(item: Item): void {
    const isNew = !this.items.has(item.id);
    this.items.set(item.id, item);
    this.touch(`item:${item.id}`);
    if (!isNew) return;
    const last = this.chunks.at(-1);
    this.chunks =
      last && last.length < CHUNK ? [...this.chunks.slice(0, -1), [...last, item.id]] : [...this.chunks, [item.id]];
    this.touch("items");
  }

  private putCard(card: ToolCard): void {
    const id = card.toolCallId;
    const before = this.cards.get(id)?.parentId;
    this.cards.set(id, card);
    this.touch(`tool:${id}`);
    if (before === card.parentId) return;
    if (before !== undefined) {
      this.below.set(before, this.children(before).filter((child) => child !== id));
      this.touch(`tool:${before}`);
    }
    if (card.parentId !== undefined && card.parentId !== id) {
      this.below.set(card.parentId, [...this.children(card.parentId), id]);
      this.touch(`tool:${card.parentId}`);
    }
  }

  private touch(topic: Topic): void {
    this.changed.add(topic);
    if (this.scheduled) return;
    this.scheduled = true;
    this.nextFrame(() => {
      this.flush();
    });
  }

  private flush(): void {
    this.scheduled = false;
    const changed = [...this.changed];
    this.changed.clear();
    for (const topic of changed) {
      for (const listener of [...(this.listeners.get(topic) ?? [])]) listener();
    }
  }
}
