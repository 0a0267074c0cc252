/** What the page shows besides the chat itself, in one place; parts that show it are told of each change. */
import type { SessionInfo } from "@agentclientprotocol/sdk";
import { Emitter } from "../core/emitter.js";

export interface PageFacts {
  /** `out`: a token is asked for. */
  readonly stage: "looking" | "out" | "in";
  /** Why it is out, or what is wrong with the token. */
  readonly outWords: string;
  /** Empty while the server is there. */
  readonly linkWords: string;
  readonly sessions: readonly SessionInfo[];
  /** Where the list goes on. */
  readonly cursor: string | undefined;
  readonly listed: boolean;
  /** The list, where it does not stand beside the chat. */
  readonly drawer: boolean;
  readonly active: { readonly id: string; readonly cwd: string; readonly title: string } | null;
  readonly working: ReadonlySet<string>;
  readonly mayPrompt: boolean;
  readonly dialog: Asked | null;
  /** What was done, or could not be; until the next one. */
  readonly said: { readonly words: string; readonly isError: boolean } | null;
}

/** A question of the page to its user, or a text to read. */
export interface Asked {
  readonly title: string;
  readonly lines?: readonly string[];
  readonly diffs?: readonly { readonly label: string; readonly lines: readonly string[] }[];
  readonly text?: string;
  readonly choices: readonly Choice[];
  readonly answer: (id: string | undefined) => void;
}

export interface Choice {
  readonly id: string;
  readonly label: string;
  readonly detail?: string;
  readonly kind: "primary" | "secondary" | "danger";
}

const FIRST: PageFacts = {
  stage: "looking",
  outWords: "",
  linkWords: "",
  sessions: [],
  cursor: undefined,
  listed: false,
  drawer: false,
  active: null,
  working: new Set(),
  mayPrompt: true,
  dialog: null,
  said: null,
};

export class PageState {
  facts = FIRST;
  readonly changed = new Emitter<undefined>();

  set(change: Partial<PageFacts>): void {
    const before = this.facts;
    if ((Object.keys(change) as (keyof PageFacts)[]).some((name) => change[name] !== before[name])) {
      this.facts = { ...before, ...change };
      this.changed.fire(undefined);
    }
  }

  say(words: string, isError = false): void {
    this.set({ said: { words, isError } });
  }

  /** Asks by a dialog; one at a time, the next takes the place of the one before. */
  ask(asked: Omit<Asked, "answer">): Promise<string | undefined> {
    this.facts.dialog?.answer(undefined);
    return new Promise((resolve) => {
      const dialog: Asked = {
        ...asked,
        answer: (id) => {
          if (this.facts.dialog === dialog) {
            this.set({ dialog: null });
          }
          resolve(id);
        },
      };
      this.set({ dialog });
    });
  }
}
