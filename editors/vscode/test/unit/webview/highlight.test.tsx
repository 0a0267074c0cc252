// @vitest-environment jsdom
import { expect, test } from "vitest";
import "../../../src/webview/highlight";
import { TestView } from "./kit";

function shown(text: string, running = false): TestView {
  return new TestView({ items: [{ id: "a", type: "agent", text }], running });
}

test("code has its colours, where its language is known and within lists, too", () => {
  const view = shown("```python\ndef f():\n    return 1\n```\n\n- one\n  ```js\n  const a = 1;\n  ```\n\n```unheard-of\nx\n```\n\n```\ny\n```");
  expect(view.all(".from-agent .hljs-keyword").map(({ textContent }) => textContent)).toEqual(["def", "return", "const"]);
  expect(view.all(".from-agent code").map(({ textContent }) => textContent)).toEqual(["def f():\n    return 1", "const a = 1;", "x", "y"]);
});

test("code that is being written gets its colours when it is whole, with the same text", () => {
  const view = shown("```python\ndef f(", true);
  expect(view.all(".hljs-keyword")).toEqual([]);
  view.patch({ items: [{ op: "append", id: "a", text: "):\n    pass\n```\n\nDone, as said.\n\nBye" }] });
  expect(view.all(".hljs-keyword").map(({ textContent }) => textContent)).toEqual(["def", "pass"]);
  expect(view.one(".from-agent code").textContent).toBe("def f():\n    pass");
});

test("nothing in code becomes an element", () => {
  const view = shown("```html\n<script>alert(1)</script><img src=x onerror=alert(1)>\n```");
  expect(view.one("code").textContent).toContain("<script>alert(1)</script>");
  expect([...view.one("code").querySelectorAll("*")].filter(({ localName }) => localName !== "span")).toEqual([]);
});
