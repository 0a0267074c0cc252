/** A chat view in jsdom, whose frames, messages and stored state are in the test's hand. */
import { render } from "preact";
import { act } from "preact/test-utils";
import type { ChatState, Completion, FromView, Item, ToolCard, ToView } from "../../../src/core/messages";
import { App } from "../../../src/webview/app";
import { type Started, start } from "../../../src/webview/start";

// What jsdom has not, because it lays nothing out.
class NoObserver {
  observe(): void {
    // nothing changes its size
  }
  disconnect(): void {
    // nothing was observed
  }
}
/** What is in view is what a test says (`TestView.see`). */
class Sight {
  static all = new Map<Element, (entries: unknown[]) => void>();
  constructor(private readonly told: (entries: unknown[]) => void) {}
  observe(element: Element): void {
    Sight.all.set(element, this.told);
  }
  disconnect(): void {
    for (const [element, told] of Sight.all) if (told === this.told) Sight.all.delete(element);
  }
}
Object.assign(globalThis, { ResizeObserver: NoObserver, IntersectionObserver: Sight, CSS: { escape: (text: string) => text } });
Element.prototype.scrollIntoView = function scrollIntoView(this: Element) {
  scrolledTo.push(this);
};

/** The elements that were scrolled to, the latest last. */
export const scrolledTo: Element[] = [];

export const STATE: ChatState = {
  agent: { status: "ready", name: "acp-coder" },
  problem: null,
  start: null,
  session: { id: "s1", title: "A session" },
  loading: false,
  running: false,
  stopping: false,
  plan: [],
  planOf: { turn: 1, runs: true },
  usage: null,
  commands: [
    { name: "compact", description: "Shorten the conversation" },
    { name: "plan", description: "Plan first", hint: "<what>" },
  ],
  pickers: [],
  permissions: [],
  waiting: 0,
  form: null,
  queue: [],
  prompts: { of: {}, fork: false, redo: false },
  changes: [],
  images: true,
  may: { prompt: true, answer: true },
  items: [],
  tools: [],
};

export function card(toolCallId: string, change: Partial<ToolCard> = {}): ToolCard {
  return { toolCallId, title: `Call ${toolCallId}`, kind: "read", status: "in_progress", locations: [], content: [], ...change };
}

export function toolItem(toolCallId: string): Item {
  return { id: `item-${toolCallId}`, type: "tool", toolCallId };
}

export class TestView {
  readonly posted: FromView[] = [];
  readonly root = document.createElement("div");
  private readonly frames: (() => void)[] = [];
  private readonly started: Started;

  /** `stored` is what VS Code kept of a view before. */
  constructor(
    state: Partial<ChatState> = {},
    public stored?: unknown,
    inEditor = true,
  ) {
    document.body.replaceChildren(this.root);
    this.started = start(
      {
        postMessage: (message) => {
          this.posted.push(message as FromView);
        },
        getState: () => this.stored,
        setState: (value) => {
          // As VS Code does: what comes back is a copy.
          this.stored = JSON.parse(JSON.stringify(value)) as unknown;
        },
      },
      (run) => this.frames.push(run),
      inEditor,
    );
    this.do(() => {
      render(<App view={this.started.view} />, this.root);
    });
    this.tell({ type: "state", state: { ...STATE, ...state } });
  }

  /** Runs `action` and everything that is drawn because of it. */
  do(action: () => void): void {
    void act(action);
  }

  tell(message: ToView): void {
    this.do(() => {
      this.started.receive(message);
    });
    this.frame();
  }

  patch(change: Partial<Omit<Extract<ToView, { type: "patch" }>, "type">>): void {
    this.tell({ type: "patch", facts: {}, items: [], tools: [], ...change });
  }

  frame(): void {
    this.do(() => {
      for (const run of this.frames.splice(0)) run();
    });
  }

  /** The view goes away; gives what VS Code keeps of it. */
  leave(): unknown {
    this.started.leave();
    this.do(() => {
      render(null, this.root);
    });
    return this.stored;
  }

  all(selector: string): HTMLElement[] {
    return [...this.root.querySelectorAll<HTMLElement>(selector)];
  }

  one(selector: string): HTMLElement {
    const found = this.all(selector);
    if (found.length !== 1 || !found[0]) throw new Error(`${found.length} elements for ${selector} in ${new XMLSerializer().serializeToString(this.root)}`);
    return found[0];
  }

  button(name: string, within = ""): HTMLButtonElement {
    const found = this.all(`${within} button`).filter(
      (button) => (button.getAttribute("aria-label") ?? button.textContent.trim()) === name,
    );
    if (!(found[0] instanceof HTMLButtonElement)) throw new Error(`No button ${name} in ${new XMLSerializer().serializeToString(this.root)}`);
    return found[0];
  }

  click(element: HTMLElement): void {
    this.do(() => {
      element.click();
    });
  }

  /** The element comes into view. */
  see(element: Element): void {
    this.do(() => {
      Sight.all.get(element)?.([{ isIntersecting: true, intersectionRatio: 1 }]);
    });
  }

  get box(): HTMLTextAreaElement {
    const box = this.root.querySelector("textarea");
    if (!box) throw new Error("There is no box to write in");
    return box;
  }

  /** The text stands in the box as if it was typed, with the cursor at its end or at `cursor`. */
  type(text: string, cursor = text.length): void {
    this.box.focus();
    this.do(() => {
      this.box.value = text;
      this.box.setSelectionRange(cursor, cursor);
      this.box.dispatchEvent(new Event("input", { bubbles: true }));
    });
  }

  /** The same in another field. */
  fill(field: HTMLInputElement, text: string): void {
    this.do(() => {
      field.value = text;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    });
  }

  /** Gives whether the key's own effect was prevented. */
  key(key: string, init: KeyboardEventInit = {}): boolean {
    const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...init });
    this.do(() => {
      this.box.dispatchEvent(event);
    });
    return event.defaultPrevented;
  }

  paste(...files: File[]): void {
    const event = new Event("paste", { bubbles: true, cancelable: true });
    Object.assign(event, { clipboardData: { files } });
    this.do(() => {
      this.box.dispatchEvent(event);
    });
  }

  sent<Type extends FromView["type"]>(type: Type): Extract<FromView, { type: Type }>[] {
    return this.posted.filter((message): message is Extract<FromView, { type: Type }> => message.type === type);
  }

  complete(entries: readonly Completion[], request = this.sent("complete").at(-1)?.request ?? -1): void {
    this.tell({ type: "completions", request, entries });
  }
}
