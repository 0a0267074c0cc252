// @vitest-environment jsdom
import { expect, test } from "vitest";
import { TestView } from "./kit";

const FILE = { kind: "file", uri: "file:///w/a.py", label: "a.py" } as const;

test("Enter sends what is written and empties the box", () => {
  const view = new TestView();
  view.type("Do it");
  expect(view.key("Enter")).toBe(true);
  expect(view.sent("send")).toEqual([{ type: "send", text: "Do it", attachments: [] }]);
  expect(view.box.value).toBe("");
});

test("Shift and Enter begin a new line", () => {
  const view = new TestView();
  view.type("Do it");
  expect(view.key("Enter", { shiftKey: true })).toBe(false);
  expect(view.sent("send")).toEqual([]);
});

test("the Enter of an input method does not send", () => {
  const view = new TestView();
  view.type("にほん");
  expect(view.key("Enter", { isComposing: true })).toBe(false);
  expect(view.key("Enter", { keyCode: 229 })).toBe(false);
  expect(view.sent("send")).toEqual([]);
});

test("nothing is sent when there is nothing but space", () => {
  const view = new TestView();
  view.type("  \n ");
  view.key("Enter");
  expect(view.sent("send")).toEqual([]);
  expect(view.button("Send").disabled).toBe(true);
});

test("while the agent works Enter sends too, and there is a button to stop", () => {
  const view = new TestView({ running: true });
  view.type("Next");
  view.key("Enter");
  expect(view.sent("send")).toHaveLength(1);
  view.click(view.button("Stop"));
  expect(view.sent("stop")).toHaveLength(1);
});

test("a stop that was asked for says so and cannot be asked for again", () => {
  const view = new TestView({ running: true, stopping: true });
  expect(view.button("Stopping…").disabled).toBe(true);
});

test("Escape neither stops nor empties the box", () => {
  const view = new TestView({ running: true });
  view.type("Half a tho");
  view.key("Escape");
  expect(view.sent("stop")).toEqual([]);
  expect(view.box.value).toBe("Half a tho");
});

test("Up in an empty box goes back through what was sent, Down forth again", () => {
  const view = new TestView({
    items: [
      { id: "1", type: "user", text: "first", attachments: [] },
      { id: "2", type: "agent", text: "an answer" },
      { id: "3", type: "user", text: "second", attachments: [] },
    ],
    queue: [{ id: "q", text: "queued", now: false }],
  });
  const seen = ["ArrowUp", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown", "ArrowDown", "ArrowDown"].map((key) => {
    view.key(key);
    return view.box.value;
  });
  expect(seen).toEqual(["queued", "second", "first", "first", "second", "queued", ""]);
});

test("Up in a box with a text of one's own only moves the cursor", () => {
  const view = new TestView({ items: [{ id: "1", type: "user", text: "first", attachments: [] }] });
  view.type("mine");
  expect(view.key("ArrowUp")).toBe(false);
  expect(view.box.value).toBe("mine");
});

test("text from the extension is put below what is written, with its attachments once", () => {
  const view = new TestView();
  view.type("Mine");
  view.tell({ type: "compose", text: "Fix this", attachments: [FILE] });
  view.tell({ type: "compose", text: "", attachments: [FILE] });
  expect(view.box.value).toBe("Mine\nFix this");
  expect(view.all(".composer .chip")).toHaveLength(1);
  expect(document.activeElement).toBe(view.box);
});

test("a chip that is removed is not sent", () => {
  const view = new TestView();
  view.tell({ type: "compose", text: "Look", attachments: [FILE, { kind: "problems", label: "Problems" }] });
  view.click(view.button("Remove a.py"));
  view.key("Enter");
  expect(view.sent("send")).toEqual([{ type: "send", text: "Look", attachments: [{ kind: "problems", label: "Problems" }] }]);
});

test("attachments are sent without a text", () => {
  const view = new TestView();
  view.tell({ type: "compose", text: "", attachments: [FILE] });
  view.click(view.button("Send"));
  expect(view.sent("send")).toEqual([{ type: "send", text: "", attachments: [FILE] }]);
  expect(view.all(".composer .chip")).toEqual([]);
});

async function waitFor(condition: () => boolean): Promise<void> {
  await expect.poll(condition, { timeout: 60_000, interval: 5 }).toBe(true);
}

test("a picture that is pasted becomes a chip and is sent as base64", async () => {
  const view = new TestView();
  view.paste(new File([new Uint8Array([1, 2, 3])], "x.png", { type: "image/png" }));
  await waitFor(() => view.all(".composer .chip").length === 1);
  view.key("Enter");
  expect(view.sent("send")[0]?.attachments).toEqual([{ kind: "image", label: "Picture 1", mimeType: "image/png", data: "AQID" }]);
});

test.each([
  ["no pictures are taken", false, new File(["x"], "x.png", { type: "image/png" }), "does not accept images"],
  ["the type cannot be sent", true, new File(["x"], "x.svg", { type: "image/svg+xml" }), "image/svg+xml was left out"],
  ["it is too big", true, new File([new Uint8Array(5 * 1024 * 1024 + 1)], "x.png", { type: "image/png" }), "the maximum is 5 MB"],
])("a picture is refused in words when %s", async (_, images, file, words) => {
  const view = new TestView({ images });
  view.paste(file);
  await waitFor(() => view.one(".composer .message").textContent.includes(words));
  expect(view.all(".composer .chip")).toEqual([]);
  view.type("x");
  expect(view.one(".composer .message").textContent).toBe("");
});

test("pasted text is left to the box", () => {
  const view = new TestView();
  view.paste();
  expect(view.one(".composer .message").textContent).toBe("");
});

test("a prompt that waits can be removed from the queue", () => {
  const view = new TestView({ running: true, queue: [{ id: "q1", text: "Then this", now: false }] });
  view.click(view.button("Remove from the queue: Then this"));
  expect(view.sent("unqueue")).toEqual([{ type: "unqueue", id: "q1" }]);
});

test("a prompt that waits can be said now, where the agent takes it", () => {
  const later = { id: "q1", text: "/compact", now: false };
  const view = new TestView({ running: true, queue: [later, { id: "q2", text: "Use tabs", now: true }] });
  view.click(view.button("Say it now: Use tabs"));
  expect(view.sent("steer")).toEqual([{ type: "steer", id: "q2" }]);
  expect(() => view.button("Say it now: /compact")).toThrow();
});

test("a choice and a switch are told to the extension", () => {
  const view = new TestView({
    pickers: [
      {
        id: "mode",
        name: "Mode",
        category: "mode",
        value: "ask",
        choices: [
          { value: "ask", name: "Ask" },
          { value: "auto", name: "Auto" },
        ],
      },
      { id: "web", name: "Web", category: "other", value: false, choices: [] },
    ],
  }, undefined, false);
  const select = view.one("select") as HTMLSelectElement;
  expect(select.getAttribute("aria-label")).toBe("Mode");
  view.do(() => {
    select.value = "auto";
    select.dispatchEvent(new Event("change", { bubbles: true }));
  });
  view.click(view.one("input[role=switch]"));
  expect(view.sent("pick")).toEqual([
    { type: "pick", id: "mode", value: "auto" },
    { type: "pick", id: "web", value: true },
  ]);
});

test("in the editor a choice is a button with what holds, whose list the editor shows", () => {
  const choices = [{ value: "ask", name: "Ask" }];
  const view = new TestView({ pickers: [{ id: "mode", name: "Mode", category: "mode", value: "ask", choices }] });
  const button = view.one(".picker");
  expect([button.getAttribute("aria-label"), button.textContent]).toEqual(["Mode", "Ask"]);
  view.click(button);
  expect(view.sent("choose")).toEqual([{ type: "choose", id: "mode" }]);
});

test("files that are dropped are attached, each once", () => {
  const view = new TestView();
  const drop = (): void => {
    const event = new Event("drop", { bubbles: true, cancelable: true });
    const getData = (): string => "file:///w/a%20b.py\r\nvscode-remote://ssh-remote%2Bbox/w/c.py\r\nhttps://example.com/x";
    Object.assign(event, { dataTransfer: { files: [], getData } });
    view.do(() => view.one("form.composer").dispatchEvent(event));
  };
  drop();
  drop();
  expect(view.all(".composer .chip .label").map(({ textContent }) => textContent)).toEqual(["a b.py", "c.py"]);
  view.type("Look");
  view.key("Enter");
  expect(view.sent("send")[0]?.attachments.map((one) => ("uri" in one ? one.uri : ""))).toEqual(["file:///w/a%20b.py", "file:///w/c.py"]);
});

test("a choice that the agent does not follow goes back to what holds", () => {
  const picker = {
    id: "mode",
    name: "Mode",
    category: "mode",
    value: "ask",
    choices: [
      { value: "ask", name: "Ask" },
      { value: "auto", name: "Auto" },
    ],
  };
  const view = new TestView({ pickers: [picker] }, undefined, false);
  const select = view.one("select") as HTMLSelectElement;
  select.value = "auto";
  view.patch({ facts: { pickers: [{ ...picker }] } });
  expect(select.value).toBe("ask");
});
