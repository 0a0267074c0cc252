import type { RequestPermissionRequest, SessionUpdate } from "@agentclientprotocol/sdk";
import { describe, expect, it } from "vitest";
import type { AgentLink } from "../../../src/agent/link.js";
import { REQUEST_CANCELLED } from "../../../src/agent/link.js";
import { Session } from "../../../src/agent/session.js";
import { ToolCalls } from "../../../src/core/toolCalls.js";

/** A session of a server, at which others may be, too. */
function rig(meta: Record<string, unknown> = { scope: "prompt" }): { session: Session; calls: ToolCalls; sent: string[]; returned: string[] } {
  const sent: string[] = [];
  const returned: string[] = [];
  const calls = new ToolCalls();
  const link = {
    initialized: { protocolVersion: 1, _meta: meta },
    request: (method: string) => {
      sent.push(method);
      return new Promise(() => undefined);
    },
    notify: (method: string) => {
      sent.push(method);
    },
  } as unknown as AgentLink;
  const session = new Session("s", "/w", link, calls, () => undefined);
  session.onReturned = (prompts) => {
    returned.push(...prompts.map(({ text }) => text));
  };
  return { session, calls, sent, returned };
}

const turn = (state: string): SessionUpdate => ({ sessionUpdate: "session_info_update", _meta: { turn: { state } } });
const call: SessionUpdate = { sessionUpdate: "tool_call", toolCallId: "c", title: "Wait", status: "in_progress" };
const ask: RequestPermissionRequest = {
  sessionId: "s",
  toolCall: { toolCallId: "c", title: "Delete" },
  options: [{ optionId: "yes", name: "Yes", kind: "allow_once" }],
};

describe("a turn that somebody else asked for", () => {
  it("is one like any other: it can be stopped, and prompts wait for its end", () => {
    const { session, calls, sent } = rig();
    session.apply(turn("running"));
    session.apply(call);
    expect([session.working, session.running]).toEqual([true, false]);
    session.prompt("next", [{ type: "text", text: "next" }]);
    expect(session.queued.map(({ text }) => text)).toEqual(["next"]);
    session.apply(turn("idle"));
    expect(calls.running()).toEqual([]);
    expect(sent).toEqual(["session/prompt"]);
    expect(session.running).toBe(true);
  });

  it("is stopped as one's own is, once", () => {
    const { session, sent, returned } = rig();
    session.apply(turn("running"));
    session.prompt("next", [{ type: "text", text: "next" }]);
    session.stop();
    session.stop();
    expect([sent, returned, session.stopping]).toEqual([["session/cancel"], ["next"], true]);
    session.apply(turn("idle"));
    expect([session.working, session.stopping, sent.length]).toEqual([false, false, 1]);
  });

  it("still runs when the session was loaded in the middle of it: its calls stay open", () => {
    const { session, calls } = rig();
    session.loading = true;
    session.apply(call);
    session.adopt({ _meta: { turn: { state: "running" } } });
    session.loaded();
    expect([session.working, calls.get("s", "c")?.status]).toEqual([true, "in_progress"]);
  });

  it("is nothing to know of when the agent is gone; what waited for it comes back", () => {
    const { session, returned } = rig();
    session.apply(turn("running"));
    session.prompt("next", [{ type: "text", text: "next" }]);
    session.abandon();
    expect([session.working, returned]).toEqual([false, ["next"]]);
  });
});

describe("a question that is withdrawn", () => {
  const notes = (session: Session): string[] => session.transcript.items.flatMap((item) => (item.type === "notice" ? [item.title] : []));

  it("was answered elsewhere", async () => {
    const { session } = rig();
    const asking = new AbortController();
    const answer = session.ask(ask, asking.signal);
    asking.abort(Object.assign(new Error("cancelled"), { code: REQUEST_CANCELLED }));
    expect(await answer).toEqual({ outcome: { outcome: "cancelled" } });
    expect([notes(session), session.questions]).toEqual([["Answered elsewhere."], []]);
  });

  it("was not, if it was answered here, the link was lost, or nobody else can be there", async () => {
    for (const [meta, reason, first] of [
      [{ scope: "prompt" }, { code: REQUEST_CANCELLED }, true],
      [{ scope: "prompt" }, new Error("ACP connection closed"), false],
      [{}, { code: REQUEST_CANCELLED }, false],
    ] as const) {
      const { session } = rig(meta);
      const asking = new AbortController();
      const answer = session.ask(ask, asking.signal);
      if (first) {
        session.answer(session.questions[0]?.id ?? "", "yes");
      }
      asking.abort(reason);
      await answer;
      expect(notes(session)).toEqual([]);
    }
  });
});

describe("what was read or failed", () => {
  it("need not be read a second time in the same session", () => {
    const { session } = rig();
    const run = (toolCallId: string, command: string): void => {
      void session.ask({ ...ask, toolCall: { toolCallId, title: command, kind: "execute", rawInput: { command } } }, new AbortController().signal);
    };
    run("c1", "make a\nmake b");
    session.see(session.questions[0]?.id ?? "");
    run("c2", "make a\nmake b");
    run("c3", "make a\nmake c");
    expect(session.questions.map(({ seen }) => seen)).toEqual([true, true, false]);
  });

  it("can be sent again as it was, not while something runs", () => {
    const { session, sent } = rig();
    session.again();
    expect(sent).toEqual([]);
    session.prompt("go", [{ type: "text", text: "go" }]);
    session.again();
    expect(sent).toEqual(["session/prompt"]);
    session.running = false;
    session.again();
    expect(sent).toEqual(["session/prompt", "session/prompt"]);
    expect(session.transcript.items.map((item) => item.type === "user" && item.text)).toEqual(["go", "go"]);
  });

  it("is over with the next prompt: a plan of which all was done", () => {
    const { session } = rig();
    const plan = (status: "completed" | "pending"): void => {
      session.apply({ sessionUpdate: "plan", entries: [{ content: "One", priority: "low", status }] });
    };
    plan("completed");
    expect(session.planIsOver).toBe(false);
    session.apply(turn("running"));
    expect(session.planIsOver).toBe(true);
    plan("pending");
    session.apply(turn("idle"));
    session.apply(turn("running"));
    expect(session.planIsOver).toBe(false);
  });
});
