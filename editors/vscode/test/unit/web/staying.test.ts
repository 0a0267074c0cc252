import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { AgentHost, HostChange } from "../../../src/agent/host.js";
import { Emitter } from "../../../src/core/emitter.js";
import type { Entrance } from "../../../src/web/entrance.js";
import { PageState } from "../../../src/web/state.js";
import { Staying } from "../../../src/web/staying.js";

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(Math, "random").mockReturnValue(0.5);
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** A host whose server is there or not, and counts the attempts to reach it. */
class Host {
  readonly changed = new Emitter<HostChange>();
  status = "stopped";
  running: object | undefined;
  starts = 0;
  isThere = true;
  answers = true;
  start(): Promise<void> {
    this.starts += 1;
    this.running = this.isThere ? {} : undefined;
    this.become(this.isThere ? "ready" : "failed");
    return this.isThere ? Promise.resolve() : Promise.reject(new Error("nobody"));
  }
  stop(): Promise<void> {
    this.running = undefined;
    this.become("stopped");
    return Promise.resolve();
  }
  pageOfSessions(): Promise<object> {
    return this.answers ? Promise.resolve({}) : new Promise(() => undefined);
  }
  lose(): void {
    this.running = undefined;
    this.become("failed");
  }
  become(status: string): void {
    this.status = status;
    this.changed.fire({ kind: "agent" });
  }
}

function rig(entrance: Entrance[] = []): { host: Host; state: PageState; staying: Staying; arrivals: () => number } {
  const host = new Host();
  const state = new PageState();
  let arrivals = 0;
  const staying = new Staying(
    host as unknown as AgentHost,
    state,
    () => Promise.resolve(entrance.shift() ?? "in"),
    () => {
      arrivals += 1;
      return Promise.resolve();
    },
  );
  return { host, state, staying, arrivals: () => arrivals };
}

test("after a lost link it comes back, with longer pauses while nobody is there, and begins anew once it is in", async () => {
  const { host, state, staying, arrivals } = rig();
  await staying.now();
  expect([host.starts, arrivals(), state.facts.stage]).toEqual([1, 1, "in"]);
  host.isThere = false;
  host.lose();
  expect(state.facts.linkWords).toContain("connection is lost");
  const pauses = [500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000];
  for (const [index, pause] of pauses.entries()) {
    await vi.advanceTimersByTimeAsync(pause - 1);
    expect(host.starts).toBe(1 + index);
    await vi.advanceTimersByTimeAsync(2);
    expect(host.starts).toBe(2 + index);
  }
  host.isThere = true;
  await vi.advanceTimersByTimeAsync(15_000);
  expect([arrivals(), state.facts.linkWords]).toEqual([2, ""]);
  host.lose();
  await vi.advanceTimersByTimeAsync(510);
  expect(arrivals()).toBe(3);
});

test("a token that is not known any more is asked for, and nothing is tried any longer", async () => {
  const { host, state, staying } = rig(["in", "out"]);
  await staying.now();
  host.lose();
  await vi.advanceTimersByTimeAsync(60_000);
  expect([host.starts, state.facts.stage]).toEqual([1, "out"]);
});

test("a server that is full is asked again, and that is said", async () => {
  const { host, state, staying } = rig(["full", "offline"]);
  await staying.now();
  await vi.advanceTimersByTimeAsync(1);
  expect(state.facts.linkWords).toContain("no more connections");
  await vi.advanceTimersByTimeAsync(5_000);
  expect([host.starts, state.facts.stage]).toEqual([1, "in"]);
});

test("a link that has died in its sleep is found when the page is seen again", async () => {
  const { host, staying, arrivals } = rig();
  await staying.now();
  staying.look();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(arrivals()).toBe(1);
  host.answers = false;
  staying.look();
  await vi.advanceTimersByTimeAsync(5_001);
  expect([arrivals(), host.starts]).toEqual([2, 2]);
});

test("whoever has logged out does not come back", async () => {
  const { host, staying } = rig();
  await staying.now();
  staying.end();
  host.lose();
  staying.look();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(host.starts).toBe(1);
});
