import type { CreateElicitationRequest } from "@agentclientprotocol/sdk";
import { expect, test } from "vitest";
import { Forms } from "../../../src/agent/forms.js";

const never = new AbortController().signal;

function form(message: string): CreateElicitationRequest {
  return { mode: "form", message, sessionId: "s", requestedSchema: { type: "object", properties: { name: { type: "string" } } } };
}

test("forms come one at a time, and each gets its own answer", async () => {
  const forms = new Forms();
  const answers = [forms.elicit(form("one"), never), forms.elicit(form("two"), never)];
  await Promise.resolve();
  expect(forms.now?.message).toBe("one");
  forms.answer(1, { action: "accept", content: { name: "Ada" } });
  expect(await answers[0]).toEqual({ action: "accept", content: { name: "Ada" } });
  await Promise.resolve();
  expect(forms.now?.message).toBe("two");
  forms.answer(1, { action: "accept" }); // Of the one before: it counts no more.
  forms.answer(2, { action: "decline" });
  expect(await answers[1]).toEqual({ action: "decline" });
  expect(forms.now).toBeNull();
});

test("a form that is withdrawn goes away, also before it was shown", async () => {
  const forms = new Forms();
  const [first, second] = [new AbortController(), new AbortController()];
  const answers = [forms.elicit(form("one"), first.signal), forms.elicit(form("two"), second.signal)];
  await Promise.resolve();
  second.abort();
  first.abort();
  expect(await Promise.all(answers)).toEqual([{ action: "cancel" }, { action: "cancel" }]);
  expect(forms.now).toBeNull();
});

test("an address is shown, unless it is no web page's", async () => {
  const forms = new Forms();
  const url = (address: string): CreateElicitationRequest => ({ mode: "url", message: "log in", sessionId: "s", url: address, elicitationId: "e" });
  expect(() => forms.elicit(url("javascript:alert(1)"), never)).toThrow("only web URLs");
  const answer = forms.elicit(url("https://example.com/x"), never);
  await Promise.resolve();
  expect(forms.now?.url).toBe("https://example.com/x");
  forms.complete("e");
  expect(await answer).toEqual({ action: "cancel" });
});
