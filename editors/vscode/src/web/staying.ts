import type { AgentHost } from "../agent/host.js";
import { messageOf } from "../core/words.js";
import { within } from "./connection.js";
import type { Entrance } from "./entrance.js";
import type { PageState } from "./state.js";

/** Milliseconds before the first attempt to come back, and the most before any. */
const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
/** Milliseconds for a server that was there before a device slept. */
const ALIVE = 5_000;

/** Stays connected: after a lost link or a restarted server it comes back, and opens the session again. */
export class Staying {
  private tries = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private connecting: Promise<void> | undefined;
  private isOver = false;

  constructor(
    private readonly host: AgentHost,
    private readonly state: PageState,
    private readonly knock: () => Promise<Entrance>,
    /** Opens what was open. */
    private readonly arrived: () => Promise<void>,
  ) {
    host.changed.on((change) => {
      if (change.kind === "agent" && host.status === "failed") {
        this.later();
      }
    });
  }

  /** At once, whatever the next attempt was to wait for. */
  now(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.isOver = false;
    this.connecting ??= this.connect().finally(() => {
      this.connecting = undefined;
    });
    return this.connecting;
  }

  /** The page is seen again, or the network is back: a link may be dead without anybody having noticed. */
  look(): void {
    if (this.isOver || this.state.facts.stage !== "in") {
      return;
    }
    const link = this.host.running;
    if (link === undefined) {
      void this.now();
      return;
    }
    within(ALIVE, this.host.pageOfSessions()).catch(() => {
      // Its end is told only when the network gives it up.
      void this.host.stop().then(() => this.now());
    });
  }

  end(): void {
    this.isOver = true;
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private later(): void {
    if (this.isOver || this.timer !== undefined || this.connecting !== undefined) {
      return;
    }
    const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.tries) * (0.8 + 0.4 * Math.random());
    this.tries += 1;
    this.state.set({ linkWords: "The connection is lost. Trying again…" });
    this.timer = setTimeout(() => {
      void this.now();
    }, wait);
  }

  private async connect(): Promise<void> {
    const found = await this.knock();
    if (found === "out") {
      this.end();
      this.state.set({ stage: "out", linkWords: "" });
      return;
    }
    if (found === "in") {
      try {
        await this.host.start();
        this.tries = 0;
        this.state.set({ stage: "in", linkWords: "" });
        await this.arrived();
        if (this.host.running !== undefined) {
          return;
        }
      } catch (error) {
        if (this.host.running !== undefined) {
          this.state.say(messageOf(error), true);
          return;
        }
      }
    }
    // Behind `connecting`, which `later` waits for.
    setTimeout(() => {
      this.later();
      if (found === "full") {
        this.state.set({ linkWords: "The server takes no more connections now. Trying again…" });
      }
    });
  }
}
