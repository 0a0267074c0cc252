import { expect, test } from "vitest";
import { FirstStart } from "../../../src/agent/firstStart.js";
import type { AgentHost } from "../../../src/agent/host.js";
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
