// @vitest-environment jsdom
import { expect, test } from "vitest";
import { htmlOf, runsOfLines, withPlaces } from "../../../src/webview/markdown";
import { safeHref } from "../../../src/webview/links";
import { TestView } from "./kit";

function shown(text: string): { view: TestView; element: HTMLElement } {
  const view = new TestView({ items: [{ id: "a", type: "agent", text }] });
  return { view, element: view.one(".from-agent .markdown") };
}

const HOSTILE = [
  "<script>window.evil = true</script>",
  "<img src=x onerror=alert(1)>",
  "text <b onclick=alert(1)>bold</b> <iframe src=https://example.com></iframe>",
  "<svg onload=alert(1)><a xlink:href='javascript:alert(1)'>x</a></svg>",
  "<style>body { display: none }</style>",
  "<form action=https://example.com><input name=x></form>",
  "<a href='https://example.com' data-href='javascript:alert(1)'>x</a>",
  '[x](https://example.com "\\" onmouseover=alert(1) x=\\"")',
  "```html\n<script>alert(1)</script>\n```",
  "- ```\n  </code><script>alert(1)</script>\n  ```",
  "| <script>alert(1)</script> |\n|---|\n| <img src=x onerror=alert(1)> |",
  "`<script>alert(1)</script>`",
  '![x" onerror="alert(1)](https://example.com/x.png)',
];

test.each(HOSTILE)("nothing of %s becomes an element or a handler", (text) => {
  const { element } = shown(text);
  expect(element.querySelectorAll("script, img, iframe, svg:not(.icon), style, form, input, b")).toHaveLength(0);
  const names = [...element.querySelectorAll("*")].flatMap((one) => one.getAttributeNames());
  expect(names.filter((name) => name.startsWith("on") || name === "href" || name === "src" || name === "style")).toEqual([]);
  expect([...element.querySelectorAll("[data-href^=javascript]")]).toEqual([]);
});

test("a file and its line are a link in code and in answers, and nothing else is", () => {
  expect(withPlaces("at src/a.py:12:3, b.ts:4 but not http://x.y:80/z, 12:30 or a.py").filter((part) => typeof part !== "string")).toHaveLength(2);
  const view = new TestView({ items: [{ id: "1", type: "agent", text: "See `a.py:7` and `a.py`.\n\n```\nE  tests/t.py:3: no\n```" }] });
  expect(view.all("[data-href]").map((link) => link.getAttribute("data-href"))).toEqual(["./a.py:7", "tests/t.py:3"]);
  for (const link of view.all("[data-href]")) view.click(link);
  expect(view.sent("openLink").map(({ href }) => href)).toEqual(["./a.py:7", "tests/t.py:3"]);
});

test("a link leads where it says, also where its words name a file and its line", () => {
  const { element } = shown("See [`a.py:7`](src/pkg/a.py#L7), then `b.py:1`.");
  expect([...element.querySelectorAll("[data-href]")].map((link) => [link.getAttribute("data-href"), link.textContent])).toEqual([["src/pkg/a.py#L7", "a.py:7"], ["./b.py:1", "b.py:1"]]);
});

test("code is put at the cursor, or applied by the agent", () => {
  const view = new TestView({ items: [{ id: "1", type: "agent", text: "```python\nx = 1\n```\n\nDone." }] });
  view.click(view.button("Insert the code at the cursor"));
  expect(view.sent("insert")).toEqual([{ type: "insert", text: "x = 1" }]);
  view.click(view.button("Let the agent apply the code"));
  expect(view.sent("send")[0]?.text).toBe("Apply this to the files it belongs to:\n\n````python\nx = 1\n````");
});

test("HTML that marked lets through is cleaned all the same", () => {
  const text = '<img src=x onerror=alert(1)><script>alert(1)</script><b onclick=alert(1)>b</b><a href="javascript:alert(1)">a</a>';
  expect(htmlOf({ type: "text", raw: text, text, escaped: true })).toBe("b<a>a</a>");
});

test("raw HTML is shown as the text it is", () => {
  expect(shown("<script>alert(1)</script>").element.textContent).toBe("<script>alert(1)</script>");
  expect(shown("a <b>c</b> d").element.textContent.trim()).toBe("a <b>c</b> d");
});

test.each([
  ["https://example.com/a?b=c", true],
  ["HTTP://EXAMPLE.COM", true],
  ["mailto:a@example.com", true],
  ["file:///w/a.py", true],
  ["src/a.py", true],
  ["/w/a.py", true],
  ["src/a.py:12:3", true],
  ["a.py:12", true],
  ["C:\\w\\a.py", true],
  ["javascript:alert(1)", false],
  ["JaVaScRiPt:alert(1)", false],
  [" java\nscript:alert(1)", false],
  ["\u0001javascript:alert(1)", false],
  ["data:text/html,x", false],
  ["vbscript:x", false],
  ["command:workbench.action.quit", false],
  ["vscode://x/y", false],
  ["//example.com/x", false],
  ["\\\\server\\share", false],
  ["#part", false],
  ["", false],
])("the address %j may be opened: %s", (address, allowed) => {
  expect(safeHref(address) !== null).toBe(allowed);
});

test("a link is told to the extension and has no address of its own", () => {
  const { view, element } = shown("See [the page](https://example.com/?a=1&b=2).");
  const link = element.querySelector("a");
  if (!link) throw new Error("There is no link");
  expect(link.hasAttribute("href")).toBe(false);
  view.click(link);
  expect(view.sent("openLink")).toEqual([{ type: "openLink", href: "https://example.com/?a=1&b=2" }]);
});

test("a link is opened by Enter as well", () => {
  const { view, element } = shown("[a](src/a.py)");
  const link = element.querySelector("a");
  expect(link?.getAttribute("tabindex")).toBe("0");
  view.do(() => link?.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true })));
  expect(view.sent("openLink")).toEqual([{ type: "openLink", href: "src/a.py" }]);
});

test("a link that may not be opened is its text", () => {
  const { element } = shown("[click](javascript:alert(1)) me");
  expect(element.querySelector("a")).toBeNull();
  expect(element.textContent.trim()).toBe("click me");
});

test("a picture is its description, which leads to it", () => {
  const { element } = shown("![a cat](https://example.com/cat.png)");
  expect(element.querySelector("img")).toBeNull();
  const link = element.querySelector("a");
  expect([link?.textContent, link?.dataset["href"]]).toEqual(["a cat", "https://example.com/cat.png"]);
});

test("code that is not closed yet shows what has come of it", () => {
  const view = new TestView({ running: true, items: [{ id: "a", type: "agent", text: "Look:\n\n```py\nx = 1\n" }] });
  view.patch({ items: [{ op: "append", id: "a", text: "\n# no heading" }] });
  expect(view.one(".from-agent pre").textContent).toBe("x = 1\n\n# no heading");
  expect(view.all(".from-agent h1")).toHaveLength(0);
});

test("code is copied by its button, within a list too", async () => {
  const copied: string[] = [];
  Object.assign(navigator, {
    clipboard: {
      writeText: (text: string) => {
        copied.push(text);
        return Promise.resolve();
      },
    },
  });
  const { view } = shown("```\nx < 1\n```\n\n- item\n  ```\n  y\n  ```\n");
  for (const button of view.all(".code .copy")) view.click(button);
  await Promise.resolve();
  expect(copied).toEqual(["x < 1", "y"]);
});

test("a delta touches no element but that of the last block", () => {
  const view = new TestView({ running: true, items: [{ id: "a", type: "agent", text: "One\n\n**Two**\n\nThree\n" }] });
  const before = view.all(".from-agent .block").map((block) => block.firstChild);
  view.patch({ items: [{ op: "append", id: "a", text: "and more" }] });
  const after = view.all(".from-agent .block").map((block) => block.firstChild);
  expect(after.map((node, index) => node === before[index])).toEqual([true, true, false]);
  expect(view.one(".from-agent .markdown").textContent).toContain("and more");
});

test("lists of things to do show what is done", () => {
  expect(shown("- [x] one\n- [ ] two").element.textContent.replace(/\s+/g, " ").trim()).toBe("☑ one ☐ two");
});

test("long code is in runs of lines that add up to it", () => {
  const text = Array.from({ length: 350 }, (_, index) => `line ${index}`).join("\n");
  expect(runsOfLines(text)).toHaveLength(4);
  expect(runsOfLines(text).join("\n")).toBe(text);
});
