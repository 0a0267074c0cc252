// @vitest-environment jsdom
import { expect, test } from "vitest";
import type { Permission } from "../../../src/core/messages";
import { card, TestView, toolItem } from "./kit";

const LONG = Array.from({ length: 30 }, (_, line) => `echo ${line}`).join("\n");
const PERMISSION: Permission = {
  id: "p1",
  toolCallId: "t1",
  title: LONG,
  options: [
    { optionId: "no", name: "No, thanks", kind: "reject_once" },
    { optionId: "yes", name: "Yes, do", kind: "allow_once" },
    { optionId: "ever", name: "Always allow git push in this project", kind: "allow_always" },
  ],
  hasDiff: false,
  about: { text: LONG, diffs: [], why: ["Asked because it deletes files.", "Risk: high"], more: [], whole: true },
  seen: true,
};
const UNSEEN: Permission = { ...PERMISSION, seen: false };

function asking(permission: Permission = PERMISSION): TestView {
  return new TestView({ items: [toolItem("t1")], tools: [card("t1")], permissions: [permission] });
}

test("a question shows the whole of what it asks about, then why, then the answers, once", () => {
  const view = asking();
  expect(view.one(".question .whole").textContent).toBe(LONG);
  const parts = view.all(".question > *").map(({ className }) => className.trim());
  expect(parts).toEqual(["asked", "subject long", "why", "answers"]);
  expect(view.one(".question .why").textContent).toBe("Asked because it deletes files.Risk: high");
  expect(view.all("[data-permission]")).toHaveLength(1);
});

test("a question about a change shows its lines in colours", () => {
  const view = asking({ ...PERMISSION, hasDiff: true, about: { text: "", diffs: [{ label: "a.py", path: "/w/a.py", lines: ["-one", "+two"] }], why: [], more: [], whole: true } });
  expect(view.all(".question .line").map(({ className }) => className)).toEqual(["line removed", "line added"]);
  view.click(view.button("Show the diff", ".question"));
  expect(view.sent("openDiff")).toEqual([{ type: "openDiff", toolCallId: "t1", index: 0 }]);
});

test("the options are the agent's, in its order and words, with their scope in a second line", () => {
  const view = asking();
  expect(view.all(".option").map((option) => option.getAttribute("aria-label"))).toEqual(["No, thanks", "Yes, do", "Always allow git push in this project"]);
  expect(view.all(".option span").map(({ textContent }) => textContent)).toEqual(["No, thanks", "Yes, do", "Always allow", "git push in this project"]);
});

test("a rejection may say what to do instead", () => {
  const view = asking(UNSEEN);
  view.click(view.button("No, and say what to do instead"));
  const field = view.one(".instead input") as HTMLInputElement;
  expect(document.activeElement).toBe(field);
  expect(view.button("Reject", ".instead").disabled).toBe(true);
  view.fill(field, " use git mv ");
  view.click(view.button("Reject", ".instead"));
  expect(view.sent("permission")).toEqual([{ type: "permission", id: "p1", optionId: "no", reason: "use git mv" }]);
  expect(view.all(".option").every((option) => (option as HTMLButtonElement).disabled)).toBe(true);
});

test("an answer that allows is live once the end was in view, and one that rejects always", () => {
  const view = asking(UNSEEN);
  const scrolled: number[] = [];
  view.one(".subject").scrollBy = () => scrolled.push(1);
  expect(view.all(".option").map((option) => option.getAttribute("aria-disabled"))).toEqual([null, "true", "true"]);
  const yes = view.button("Yes, do");
  expect(view.one(`#${yes.getAttribute("aria-describedby")?.split(" ")[0] ?? ""}`).textContent).toBe("To allow it, read to the end.");
  // Not a dead end for the keyboard and a screen reader: it can be focused, and turns the page.
  yes.focus();
  expect(document.activeElement).toBe(yes);
  view.click(yes);
  expect(scrolled).toHaveLength(1);
  expect(view.sent("permission")).toEqual([]);
  view.see(view.one(".question .end"));
  expect(view.sent("seen")).toEqual([{ type: "seen", id: "p1" }]);
  view.patch({ facts: { permissions: [PERMISSION] } });
  expect(view.all("[aria-disabled]")).toEqual([]);
  view.click(view.button("Yes, do"));
  expect(view.sent("permission")).toEqual([{ type: "permission", id: "p1", optionId: "yes" }]);
  const other = asking(UNSEEN);
  other.click(other.button("No, thanks"));
  expect(other.sent("permission")).toHaveLength(1);
});

test("the second click of a double click answers nothing", () => {
  const view = asking();
  view.do(() => view.button("Yes, do").dispatchEvent(new MouseEvent("click", { bubbles: true, detail: 2 })));
  expect(view.sent("permission")).toEqual([]);
});

test("what is too long to be shown whole is never live by itself", () => {
  const view = asking({ ...UNSEEN, about: { ...UNSEEN.about, whole: false } });
  view.see(view.one(".question .end"));
  expect(view.sent("seen")).toEqual([]);
  expect(view.one(".subject").textContent).toContain("too long");
});

test("a question leaves the cursor where the user writes, before and after the answer", () => {
  const view = new TestView({ items: [toolItem("t1")], tools: [card("t1")] });
  view.type("I am wri");
  view.patch({ facts: { permissions: [PERMISSION] } });
  expect(document.activeElement).toBe(view.box);
  view.button("Yes, do").focus();
  view.click(view.button("Yes, do"));
  expect(view.sent("permission")).toEqual([{ type: "permission", id: "p1", optionId: "yes" }]);
  expect(document.activeElement).toBe(view.box);
});

test("who asks for the question gets the cursor into what it is about", () => {
  const view = asking();
  view.tell({ type: "focus", question: true });
  expect(document.activeElement).toBe(view.one(".subject"));
  const idle = new TestView();
  idle.tell({ type: "focus", question: true });
  expect(document.activeElement).toBe(idle.box);
});

test("a question is answered once", () => {
  const view = asking();
  view.click(view.button("Yes, do"));
  view.click(view.button("No, thanks"));
  expect(view.sent("permission")).toHaveLength(1);
  view.patch({ facts: { permissions: [] } });
  expect(view.all(".question")).toEqual([]);
});

test("a question is told to who listens with its reason and risk, and its call can be reached", () => {
  const tools = [card("t0", { status: "completed" }), card("t1", { parentId: "t0" })];
  const view = new TestView({ items: [toolItem("t0")], tools });
  view.patch({ facts: { permissions: [{ ...PERMISSION, title: "Edit a.py" }] } });
  expect(view.one("[aria-live=assertive]").textContent).toBe("Permission requested: Edit a.py\nAsked because it deletes files.\nRisk: high");
  expect(view.all("[data-tool=t0] [data-tool=t1]")).toHaveLength(1);
});

test("the command that is asked about is said once, and its card says that it waits", () => {
  const view = asking();
  view.patch({ tools: [card("t1", { kind: "execute", title: "echo 0 echo 1" })], facts: { permissions: [{ ...PERMISSION, title: "echo 0 echo 1" }] } });
  expect(view.one(".question .title").textContent).toBe("Run this command?");
  expect(view.one(".card .title").textContent).toBe("Waits for your answer");
  view.patch({ facts: { permissions: [{ ...PERMISSION, title: "Clean up" }] } });
  expect(view.one(".question .title").textContent).toBe("Clean up");
  view.patch({ facts: { permissions: [] } });
  expect(view.one(".card .title").textContent).toBe("echo 0 echo 1");
});

test("a button jumps to the end of what is asked about, until that was seen", () => {
  const view = asking(UNSEEN);
  const scrolled: unknown[] = [];
  view.one(".subject").scrollTo = (...to: unknown[]) => scrolled.push(...to);
  view.click(view.button("Jump to the end", ".unread"));
  expect(scrolled).toEqual([{ top: 0 }]);
  expect(document.activeElement).toBe(view.one(".subject"));
  expect(view.sent("permission")).toEqual([]);
  view.patch({ facts: { permissions: [PERMISSION] } });
  expect(view.all(".unread button")).toEqual([]);
});

test("the reasons one by one and the rule are behind a fold, the sentence and the risk are not", () => {
  const view = asking({ ...PERMISSION, about: { ...PERMISSION.about, more: ["it deletes files", "it leaves the folder", "Rule: tools.policy.ask[0]"] } });
  expect(view.one(".question .why").textContent).toBe("Asked because it deletes files.Risk: highWhy?");
  view.do(() => {
    view.one(".question .why details").setAttribute("open", "");
    view.one(".question .why details").dispatchEvent(new Event("toggle"));
  });
  expect(view.all(".question .why li").map(({ textContent }) => textContent)).toEqual(["it deletes files", "it leaves the folder", "Rule: tools.policy.ask[0]"]);
});
