import { expect, test } from "vitest";
import { pointsIn, rememberedIn, serversIn } from "../../../src/core/listed.js";

test("what the agent's commands list is read from their lines, and nothing else of them", () => {
  const permissions = "Remembered for /w:\n- #12 always allow `npm install`\n- #3 trusts files of this folder (`/trust`)\n\n`/permissions revoke NUMBER` forgets one.";
  expect(rememberedIn(permissions)).toEqual([
    { number: "12", words: "always allow npm install" },
    { number: "3", words: "trusts files of this folder (/trust)" },
  ]);
  expect(rememberedIn("Nothing is remembered for this project.")).toEqual([]);
  expect(serversIn('agent.model = "x"\nmcp.servers.one.command = "python3"\nmcp.servers.one.args = []\nmcp.servers."a.b".url = "u"\nmcp.timeout = 3\n')).toEqual(["one", "a.b"]);
  expect(pointsIn("- Rule: `x`\nmore\n- none\n")).toEqual(["Rule: x", "none"]);
});
