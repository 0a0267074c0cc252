// @vitest-environment jsdom
import type { ElicitationSchema } from "@agentclientprotocol/sdk";
import { expect, test } from "vitest";
import type { ChangedPath, ToolCard } from "../../../src/core/messages";
import { duration, money, tokens } from "../../../src/webview/words";
import { card, TestView, toolItem } from "./kit";

const FILE = { kind: "file", uri: "file:///w/a.py", label: "a.py" } as const;

test("the draft and its attachments are there again when the view comes back", () => {
  const view = new TestView();
  view.tell({ type: "compose", text: "", attachments: [FILE] });
  view.type("Half a thought");
  const again = new TestView({}, view.leave());
  expect(again.box.value).toBe("Half a thought");
  expect(again.all(".composer .chip")).toHaveLength(1);
});

test("what was sent is no draft any more", () => {
  const view = new TestView();
  view.type("Do it");
  view.key("Enter");
  expect(new TestView({}, view.leave()).box.value).toBe("");
});

test("what is written and what is sent is known at once, for a window that is loaded anew gives no time", () => {
  const view = new TestView();
  view.type("Half a thought");
  const written = view.stored;
  view.key("Enter");
  const sent = view.stored;
  expect(new TestView({}, written).box.value).toBe("Half a thought");
  expect(new TestView({}, sent).box.value).toBe("");
});

test("what was opened is open again, but not in another session", () => {
  const state = { items: [toolItem("t1")], tools: [card("t1", { input: "{}" })] };
  const view = new TestView(state);
  view.click(view.one(".card .head"));
  const stored = view.leave();
  expect(new TestView(state, stored).all(".details")).toHaveLength(1);
  expect(new TestView({ ...state, session: { id: "s2", title: "" } }, stored).all(".details")).toHaveLength(0);
});

test("a draft survives the change of the session", () => {
  const view = new TestView();
  view.type("Half a thought");
  expect(new TestView({ session: { id: "s2", title: "" } }, view.leave()).box.value).toBe("Half a thought");
});

test.each([[null], ["text"], [{ text: 3 }], [{ text: "x", attachments: "y", open: null }]])("stored state %j, which is none, is ignored", (stored) => {
  expect(new TestView({}, stored).box.value).toBe("");
});

test("the user's text is no Markdown", () => {
  const view = new TestView({ items: [{ id: "1", type: "user", text: "**a** <b>\n# c", attachments: [FILE] }] });
  expect(view.one(".said").textContent).toBe("**a** <b>\n# c");
  view.click(view.one(".bubble .chip .face"));
  expect(view.sent("openLink")).toEqual([{ type: "openLink", href: "file:///w/a.py" }]);
});

test("a thought is folded, says that it goes on while it does, and opens", () => {
  const view = new TestView({ running: true, items: [{ id: "1", type: "thought", text: "Hmm" }] });
  expect(view.one(".thought summary").textContent).toBe("Thinking…");
  expect(view.all(".thought .markdown")).toEqual([]);
  view.patch({ items: [{ op: "add", item: { id: "2", type: "agent", text: "So" } }] });
  expect(view.one(".thought summary").textContent).toBe("Thought");
  const details = view.one(".thought") as HTMLDetailsElement;
  view.do(() => {
    details.open = true;
    details.dispatchEvent(new Event("toggle"));
  });
  expect(view.one(".thought .markdown").textContent.trim()).toBe("Hmm");
});

test("an answer is read out when it is whole and not before", () => {
  const view = new TestView({ running: true, items: [{ id: "1", type: "agent", text: "Al" }] });
  const log = view.one("[role=log]");
  expect(log.getAttribute("aria-live")).toBe("off");
  view.patch({ items: [{ op: "append", id: "1", text: "most" }] });
  expect(view.one("[aria-live=polite]").textContent).toBe("");
  view.patch({ facts: { running: false } });
  expect(view.one("[aria-live=polite]").textContent).toBe("Almost");
});

test("a turn without an answer is said to be finished", () => {
  const view = new TestView({
    running: true,
    items: [{ id: "1", type: "agent", text: "Before" }, { id: "2", type: "user", text: "Go", attachments: [] }, toolItem("t1")],
    tools: [card("t1")],
  });
  view.patch({ facts: { running: false } });
  expect(view.one("[aria-live=polite]").textContent).toBe("acp-coder has finished");
});

test("a long conversation is there with its end, and the rest follows in its place", async () => {
  const items = Array.from({ length: 400 }, (_, index) => ({ id: `i${index}`, type: "agent", text: `Answer ${index}` }) as const);
  const view = new TestView({ items });
  expect(view.all(".item").at(-1)?.dataset["item"]).toBe("i399");
  expect(view.all(".item").length).toBeLessThan(400);
  await expect.poll(() => view.all(".item").length, { timeout: 60_000 }).toBe(400);
  expect(view.all(".item").map((item) => item.dataset["item"])).toEqual(items.map(({ id }) => id));
});

test("the plan folds when its turn is over, and spins in no later one, nor in a view that came later", () => {
  const plan = [{ content: "One", priority: "medium", status: "in_progress" }] as const;
  const view = new TestView({ plan, planOf: { turn: 1, runs: true }, running: true });
  expect(view.all(".plan li .spinner")).toHaveLength(1);
  view.patch({ facts: { planOf: { turn: 1, runs: false }, running: false } });
  expect(view.all(".plan li")).toEqual([]);
  view.patch({ facts: { running: true } });
  expect(view.all(".plan li, .plan .spinner")).toEqual([]);
  const later = new TestView({ plan, planOf: { turn: 1, runs: false }, running: true }, view.leave());
  expect(later.all(".plan li, .plan .spinner")).toEqual([]);
  later.patch({ facts: { planOf: { turn: 2, runs: true } } });
  expect(later.all(".plan li .spinner")).toHaveLength(1);
});

test("the plan is a list that says what is done", () => {
  const view = new TestView({
    plan: [
      { content: "One", priority: "high", status: "completed" },
      { content: "Two", priority: "low", status: "in_progress" },
      { content: "Three", priority: "low", status: "pending" },
    ],
  });
  expect(view.one(".plan summary").textContent).toContain("1 of 3 done");
  expect(view.all(".plan li").map((entry) => entry.textContent)).toEqual(["done:One", "being done:Two", "to do:Three"]);
  expect((view.one(".plan progress") as HTMLProgressElement).value).toBe(1);
});

test("a problem says what can be done, and does it", () => {
  const view = new TestView({
    problem: { title: "No agent", detail: "Install `x`.", actions: [{ label: "Settings", command: "open", argument: "acp" }] },
  });
  expect(view.one("[role=alert]").textContent).toContain("Install x.");
  view.click(view.button("Settings"));
  expect(view.sent("command")).toEqual([{ type: "command", command: "open", argument: "acp" }]);
});

test("an empty conversation says how to begin, a loading one that it loads", () => {
  const view = new TestView({ loading: true });
  expect(view.one(".empty").textContent).toBe("Loading the conversation…");
  view.patch({ facts: { loading: false } });
  expect(view.one(".empty").textContent).toContain("acp-coder");
  view.patch({ items: [{ op: "add", item: { id: "1", type: "agent", text: "Hello" } }] });
  expect(view.all(".empty")).toEqual([]);
});

test("a notice shows its severity and its Markdown", () => {
  const view = new TestView({ items: [{ id: "1", type: "notice", severity: "error", title: "It broke", text: "Ask `again`" }] });
  expect(view.one(".notice.error").textContent.trim()).toBe("It brokeAsk again");
});

test("a picture is shown only in a format that is one", () => {
  const view = new TestView({
    items: [
      { id: "1", type: "image", mimeType: "image/png", data: "AQID" },
      { id: "2", type: "image", mimeType: "image/svg+xml", data: "AQID" },
    ],
  });
  expect(view.all(".item img").map((image) => image.getAttribute("src"))).toEqual(["data:image/png;base64,AQID"]);
});

test("usage and cost stand in the footer", () => {
  const view = new TestView({ usage: { used: 48_213, size: 200_000, cost: { amount: 0.0832, currency: "USD" } } });
  expect(view.one(".usage").textContent).toBe("48.2k of 200k tokens (24 %)$0.0832");
});

test("two hundred calls in one turn each have their card", () => {
  const ids = Array.from({ length: 200 }, (_, index) => `t${index}`);
  const view = new TestView({ running: true });
  for (const id of ids) view.patch({ items: [{ op: "add", item: toolItem(id) }], tools: [card(id, { kind: "edit" })] });
  for (const id of ids) view.patch({ tools: [card(id, { kind: "edit", status: "completed", seconds: 1 })] });
  expect(view.all(".card.completed")).toHaveLength(200);
  expect(view.all(".card")).toHaveLength(200);
});

test("the extension can put the cursor into the box", () => {
  const view = new TestView();
  view.box.blur();
  view.tell({ type: "focus" });
  expect(document.activeElement).toBe(view.box);
});

test("figures are in words", () => {
  expect([0.04, 0.42, 12.4, 65, 3725].map(duration)).toEqual(["< 0.1 s", "0.4 s", "12 s", "1 min 05 s", "1 h 02 min"]);
  expect([950, 1000, 12_345, 200_000, 1_234_567].map(tokens)).toEqual(["950", "1k", "12.3k", "200k", "1.2M"]);
  expect([money(1.5, "USD"), money(0.0832, "EUR"), money(2, "credits")]).toEqual(["$1.50", "€0.0832", "2.00 credits"]);
});

test("a message can be copied, and one of the user's edited and sent again", async () => {
  const copied: string[] = [];
  Object.assign(navigator, { clipboard: { writeText: (text: string) => Promise.resolve(copied.push(text)) } });
  const attachments = [
    { kind: "file", label: "a.py", uri: "file:///w/a.py" },
    { kind: "image", label: "Image", preview: "data:image/png;base64,AAAA" },
    { kind: "resource", label: "Audio" },
  ] as const;
  const view = new TestView({
    items: [
      { id: "1", type: "user", text: "Fix it", attachments },
      { id: "2", type: "agent", text: "**Done.**" },
    ],
  });
  for (const button of view.all("[aria-label='Copy the message']")) view.click(button);
  await Promise.resolve();
  expect(copied).toEqual(["Fix it", "**Done.**"]);
  view.type("And");
  view.click(view.button("Edit the message and send it again"));
  expect(view.box.value).toBe("And\nFix it");
  expect(document.activeElement).toBe(view.box);
  expect(view.all(".composer .chip")).toHaveLength(2);
  expect(view.all("[aria-label='Edit the message and send it again']")).toHaveLength(1);
  view.key("Enter");
  expect(view.sent("send").at(-1)).toEqual({
    type: "send",
    text: "And\nFix it",
    attachments: [
      { kind: "file", label: "a.py", uri: "file:///w/a.py" },
      { kind: "image", label: "Image", mimeType: "image/png", data: "AAAA" },
    ],
  });
});

test("an answer that is being written has no buttons yet", () => {
  const view = new TestView({ items: [{ id: "1", type: "agent", text: "I am" }], running: true });
  expect(view.all(".actions")).toEqual([]);
});

test("a message that the agent can go back to has buttons for it, while no turn runs", () => {
  const item = { type: "user", attachments: [] } as const;
  const view = new TestView({
    items: [{ id: "1", text: "One", ...item }, { id: "2", text: "/compact", ...item }, { id: "3", text: "Two", ...item }],
    prompts: { of: { 1: 1, 3: 2 }, fork: true, redo: false },
  });
  expect(view.all("[aria-label='Restore to here']")).toHaveLength(2);
  expect(view.all("[data-item='2'] [aria-label='Restore to here']")).toHaveLength(0);
  view.click(view.button("Restore to here", "[data-item='3']"));
  view.click(view.button("Fork from here", "[data-item='1']"));
  expect([...view.sent("restore"), ...view.sent("fork")]).toEqual([{ type: "restore", prompt: 2 }, { type: "fork", prompt: 1 }]);
  view.patch({ facts: { running: true } });
  expect(view.all("[aria-label='Restore to here']")).toHaveLength(0);
  view.patch({ facts: { running: false, prompts: { of: { 1: 1 }, fork: false, redo: true } } });
  expect(view.all("[aria-label='Restore to here']")).toHaveLength(1);
  expect(view.all("[aria-label='Fork from here']")).toHaveLength(0);
  view.click(view.button("Redo"));
  expect(view.sent("command")).toEqual([{ type: "command", command: "acpCoder.redo" }]);
});

test("a plan folds when all of it is done, while its turn still runs", () => {
  const step = { content: "One", priority: "medium" } as const;
  const view = new TestView({ plan: [{ ...step, status: "in_progress" }], planOf: { turn: 1, runs: true }, running: true });
  expect(view.all(".plan li")).toHaveLength(1);
  view.patch({ facts: { plan: [{ ...step, status: "completed" }] } });
  expect(view.all(".plan li")).toEqual([]);
  expect(view.one(".plan summary").textContent).toContain("1 of 1 done");
});

test("a prompt that failed can be sent again, while nothing else was said", () => {
  const failed = { id: "1", type: "notice", severity: "error", title: "The prompt failed.", text: "", offer: "again" } as const;
  const view = new TestView({ items: [failed] });
  view.click(view.button("Try again"));
  expect(view.sent("again")).toEqual([{ type: "again" }]);
  view.patch({ facts: { running: true } });
  expect(view.all(".notice button")).toEqual([]);
  view.patch({ facts: { running: false }, items: [{ op: "add", item: { id: "2", type: "agent", text: "Here" } }] });
  expect(view.all(".notice button")).toEqual([]);
});

test("what a prompt changed is reviewed, kept and taken back above the box, as a whole and by file", () => {
  const changes = [
    { path: "/w/a.py", label: "a.py", added: 2, removed: 1, cache: false },
    { path: "/w/n/b.py", label: "n/b.py", added: 5, removed: 0, cache: false },
  ];
  const view = new TestView({ changes });
  expect(view.one(".changed").textContent).toBe("2 files+7−1ReviewKeepUndo");
  for (const name of ["Show all changes in the diff editor", "Keep all changes"]) view.click(view.button(name));
  view.click(view.one(".changed .fold"));
  view.click(view.button("Take the changes of n/b.py back"));
  // The second click of a double click would be for another file, which has moved there.
  const twice = new MouseEvent("click", { bubbles: true, detail: 2 });
  view.do(() => view.button("Keep the changes of a.py").dispatchEvent(twice));
  expect(view.sent("change")).toEqual([
    { type: "change", act: "review" },
    { type: "change", act: "keep" },
    { type: "change", act: "undo", path: "/w/n/b.py" },
  ]);
  view.patch({ facts: { running: true } });
  expect(view.all(".changed")).toEqual([]);
});

test("a turn that was interrupted can go on", () => {
  const view = new TestView({ items: [{ id: "1", type: "notice", severity: "warning", title: "Interrupted.", text: "", offer: "continue" }] });
  view.click(view.button("Continue"));
  expect(view.sent("send")).toEqual([{ type: "send", text: "Continue where you stopped.", attachments: [] }]);
});

test("reads and searches in a row are one line, which opens to their cards, also for the one that is to be revealed", async () => {
  const at = (path: string): Pick<ToolCard, "locations"> => ({ locations: [{ path, label: path }] });
  const tools = [card("a", at("/a")), card("b", at("/a")), card("c", at("/c")), card("d", { kind: "search" }), card("e", { kind: "edit" }), card("f")];
  const view = new TestView({ running: true, items: tools.map(({ toolCallId }) => toolItem(toolCallId)), tools });
  expect(view.all(".group").map(({ textContent }) => textContent)).toEqual(["Exploring 2 files, 1 search"]);
  expect(view.all(".card").map((each) => each.getAttribute("data-tool"))).toEqual(["e", "f"]);
  view.patch({ tools: ["a", "b", "c"].map((id, index) => card(id, { ...tools[index], status: "completed" })).concat(card("d", { kind: "search", status: "failed" })) });
  expect(view.one(".group").textContent).toBe("Explored 2 files, 1 search1 failed");
  view.tell({ type: "reveal", toolCallId: "c" });
  await expect.poll(() => view.all(".group .card").length, { timeout: 60_000 }).toBe(4);
  view.click(view.one(".group > .fold"));
  expect(view.all(".group .card")).toHaveLength(0);
});

test("a form is answered by one choice, in words, or not at all", () => {
  const schema = { type: "object", properties: { answer: { type: "string", enum: ["red", "green"] }, other: { type: "string", title: "Another" } } } as const;
  const view = new TestView({ form: { id: 4, sessionId: "s2", from: "Paint it", message: "Which colour?", schema: schema as unknown as ElicitationSchema } });
  expect(view.one(".form .message").textContent).toBe("Which colour?");
  expect(view.one(".form .from").textContent).toBe("In “Paint it”");
  view.click(view.button("green"));
  view.click(view.button("Decline"));
  expect(view.sent("form")).toEqual([
    { type: "form", id: 4, answer: { action: "accept", content: { answer: "green" } } },
    { type: "form", id: 4, answer: { action: "decline" } },
  ]);
});

test("the first start takes a provider and its key, then a model; what says what is wrong can be closed", () => {
  const providers = [
    { id: "anthropic", detail: "https://api.anthropic.com", hasKey: false },
    { id: "openai", detail: "", hasKey: true },
  ];
  const problem = { title: "The agent needs a login.", detail: "No key.", actions: [{ label: "Open settings", command: "acpCoder.openSettings" }], first: true };
  const view = new TestView({ problem, start: { providers, models: null, busy: false, error: "Refused." } });
  expect(view.one(".start .wrong").textContent).toBe("Refused.");
  expect((view.one(".start select") as HTMLSelectElement).value).toBe("openai");
  view.click(view.button("Next"));
  expect(view.sent("start")).toEqual([{ type: "start", provider: "openai", key: "" }]);
  expect(view.one(".start input").getAttribute("type")).toBe("password");

  const chosen = { provider: "openai", names: ["gpt-a", "gpt-b"], chosen: "gpt-b" };
  view.patch({ facts: { start: { providers, models: chosen, busy: false, error: "" } } });
  expect(view.one(".problem strong").textContent).toBe("Choose a model");
  expect(view.one(".start .choose").textContent).toBe("gpt-b");
  view.click(view.one(".start .choose"));
  view.click(view.button("Start"));
  view.click(view.button("Back"));
  view.patch({ facts: { start: { providers, models: { ...chosen, names: [], chosen: "" }, busy: false, error: "It cannot be asked." } } });
  view.fill(view.one(".start input") as HTMLInputElement, "gpt-c ");
  view.click(view.button("Start"));
  expect(view.sent("startModel")).toHaveLength(1);
  expect(view.sent("startAgain")).toHaveLength(1);
  expect(view.sent("startWith").map(({ model }) => model)).toEqual(["gpt-b", "gpt-c"]);
  view.click(view.button("Close"));
  expect(view.sent("dismiss")).toEqual([{ type: "dismiss" }]);
});

test("the level of thinking is labelled: its values do not say what they are of", () => {
  const choices = [{ value: "high", name: "High" }];
  const level = { id: "l", name: "Thinking", category: "thought_level", value: "high", choices };
  const view = new TestView({ pickers: [{ id: "m", name: "Mode", category: "mode", value: "high", choices }, level] }, undefined, false);
  expect(view.all(".pickers label").map((label) => label.querySelector("span")?.textContent)).toEqual(["Thinking"]);
  expect(view.one(".pickers label select").getAttribute("aria-label")).toBe("Thinking");
});

test("the bar after a turn counts what the user reviews, and says what else there is where it is unfolded", () => {
  const file = (label: string, cache = false): ChangedPath => ({ path: `/w/${label}`, label, added: 1, removed: 2, cache });
  const view = new TestView({ changes: [file("a.py"), file("__pycache__/a.pyc", true), file(".pytest_cache/v", true)] });
  expect(view.one(".changed .fold").textContent).toBe("1 file+1−2");
  view.click(view.one(".changed .fold"));
  expect(view.all(".changed li").map(({ textContent }) => textContent)).toEqual([expect.stringMatching(/^a\.py/u), "2 cache files, which programs make again: Undo takes them back, too"]);
  view.patch({ facts: { changes: [file("__pycache__/a.pyc", true)] } });
  expect(view.all(".changed")).toHaveLength(0);
});
