import { expect, test, vi } from "vitest";
import type { AgentHost } from "../../../src/agent/host.js";
import { Forms } from "../../../src/agent/forms.js";
import { Emitter } from "../../../src/core/emitter.js";
import type { ToolCalls } from "../../../src/core/toolCalls.js";
import type { Diffs } from "../../../src/editor/diffs.js";
import { Questions } from "../../../src/editor/questions.js";
import { fire, notifications, window } from "./vscode.js";

vi.mock("vscode", async () => (await import("./vscode.js")).vscode);

test("a form is told of while the window has not the keyboard, though the chat is open", async () => {
  const forms = new Forms();
  const chat = { visible: true, showQuestion: () => Promise.resolve() };
  const host = { name: "acp-coder", changed: new Emitter(), questions: [], active: undefined } as unknown as AgentHost;
  const typing = { pause: () => Promise.resolve(true) };
  const questions = new Questions(host, {} as ToolCalls, {} as Diffs, chat, () => false, typing, forms);
  window.state.focused = false;
  const request = { mode: "form", message: "Which colour?", sessionId: "s", requestedSchema: { type: "object", properties: {} } } as const;
  const answer = forms.elicit(request, new AbortController().signal);
  await vi.waitFor(() => {
    expect([...notifications]).toEqual([expect.stringContaining("acp-coder asks: Which colour?")]);
  });
  window.state.focused = true;
  fire("WindowState");
  await vi.waitFor(() => {
    expect(notifications.size).toBe(0);
  });
  forms.answer(1, { action: "decline" });
  expect(await answer).toEqual({ action: "decline" });
  questions.dispose();
});
