import { expect, test } from "vitest";
import { FirstStart } from "../../../src/agent/firstStart.js";
import type { AgentHost, HostChange } from "../../../src/agent/host.js";
import type { Program } from "../../../src/agent/program.js";
import { Emitter } from "../../../src/core/emitter.js";

function start(isOwn: boolean): FirstStart {
  const authMethods = [{ id: "api-key" }, { id: "login" }];
  return new FirstStart({ changed: new Emitter(), isOwn, authMethods } as unknown as AgentHost, { found: {} } as Program);
}

test("a key is asked for here where that is wanted, and the agent is acp-coder", () => {
  expect([undefined, "login", "api-key"].map((id) => start(true).serves(id))).toEqual([true, true, false]);
  expect(start(false).serves("login")).toBe(false);
});

test("a key is stored, its models are offered, and one of them starts the agent", async () => {
  const ran: string[] = [];
  const said: Record<string, string | Error> = {
    "login --list": "openai  https://api.openai.com/v1\ngroq   (has a key: GROQ_API_KEY)\n",
    "models openai": "openai/gpt-a\nopenai/gpt-b (in use)\n",
    "models groq": new Error("groq does not answer."),
  };
  const program = {
    found: {},
    output: (args: readonly string[], input = "") => {
      const line = args.join(" ");
      ran.push(input === "" ? line : `${line} < ${input}`);
      const answer = said[line] ?? "";
      return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
    },
  } as unknown as Program;
  const changed = new Emitter<HostChange>();
  const restart = (): Promise<void> => {
    ran.push("restart");
    return Promise.resolve();
  };
  const first = new FirstStart({ changed, isOwn: true, needsLogin: true, authMethods: [{ id: "login" }], restart } as unknown as AgentHost, program);
  changed.fire({ kind: "agent" });
  await expect.poll(() => first.now?.providers.map(({ id, hasKey }) => `${id} ${hasKey}`)).toEqual(["openai false", "groq true"]);

  await first.offer("groq", "");
  expect(first.now).toMatchObject({ busy: false, error: "groq does not answer.", models: { provider: "groq", names: [], chosen: "" } });
  first.back();
  await first.offer("openai", "sk-x");
  expect(first.now?.models).toEqual({ provider: "openai", names: ["gpt-a", "gpt-b"], chosen: "gpt-b" });
  first.choose("gpt-a");
  await first.beginWith(first.now?.models?.chosen ?? "");
  expect(ran).toEqual(["login --list", "models groq", "login openai < sk-x", "models openai", "config set agent.provider openai", "config set agent.model openai/gpt-a", "restart"]);
});
