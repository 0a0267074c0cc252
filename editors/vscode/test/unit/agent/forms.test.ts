import type { CreateElicitationRequest } from "@agentclientprotocol/sdk";
import { expect, test } from "vitest";
import { Forms } from "../../../src/web/forms.js";
import { PageState } from "../../../src/web/state.js";

const never = new AbortController().signal;

function form(message: string): CreateElicitationRequest {
  return { mode: "form", message, sessionId: "s", requestedSchema: { type: "object", properties: { name: { type: "string" } } } };
}

test("forms come one at a time, and each gets its own answer", async () => {
  const state = new PageState();
  const forms = new Forms(state);
  const answers = [forms.elicit(form("one"), never), forms.elicit(form("two"), never)];
  await Promise.resolve();
  expect(state.facts.form?.message).toBe("one");
  state.facts.form?.answer("accept", { name: "Ada" });
  expect(await answers[0]).toEqual({ action: "accept", content: { name: "Ada" } });
  await Promise.resolve();
  expect(state.facts.form?.message).toBe("two");
  state.facts.form?.answer("decline");
  expect(await answers[1]).toEqual({ action: "decline" });
  expect(state.facts.form).toBeNull();
});

test("a form that is withdrawn goes away, also before it was shown", async () => {
  const state = new PageState();
  const forms = new Forms(state);
  const [first, second] = [new AbortController(), new AbortController()];
  const answers = [forms.elicit(form("one"), first.signal), forms.elicit(form("two"), second.signal)];
  await Promise.resolve();
  second.abort();
  first.abort();
  expect(await Promise.all(answers)).toEqual([{ action: "cancel" }, { action: "cancel" }]);
  expect(state.facts.form).toBeNull();
});

test("an address is shown, unless it is no web page's", async () => {
  const state = new PageState();
  const forms = new Forms(state);
  const url = (address: string): CreateElicitationRequest => ({ mode: "url", message: "log in", sessionId: "s", url: address, elicitationId: "e" });
  expect(() => forms.elicit(url("javascript:alert(1)"), never)).toThrow("only web URLs");
  const answer = forms.elicit(url("https://example.com/x"), never);
  await Promise.resolve();
  expect(state.facts.form?.url).toBe("https://example.com/x");
  forms.complete("e");
  expect(await answer).toEqual({ action: "cancel" });
});
