import { expect, test, vi } from "vitest";
import type { AgentHost } from "../../../src/agent/host.js";
import { mayRestart } from "../../../src/editor/interrupting.js";
import { window } from "./vscode.js";

vi.mock("vscode", async () => (await import("./vscode.js")).vscode);

test("a restart asks only while the agent works, and does nothing without a yes", async () => {
  const host = (...working: boolean[]): AgentHost => ({ all: working.map((one) => ({ working: one })) }) as unknown as AgentHost;
  const asked = vi.fn<(words: string) => Promise<string | undefined>>().mockResolvedValue(undefined);
  window["showWarningMessage"] = asked;
  expect(await mayRestart(host())).toBe(true);
  expect(await mayRestart(host(false, false))).toBe(true);
  expect(asked).not.toHaveBeenCalled();
  expect(await mayRestart(host(true, false))).toBe(false);
  asked.mockResolvedValue("Restart agent");
  expect(await mayRestart(host(true, true))).toBe(true);
  expect(asked.mock.calls.map(([words]) => words)).toEqual(["The agent is working. Restarting it stops that.", "The agent is working in 2 sessions. Restarting it stops that."]);
});
