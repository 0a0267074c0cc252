import { expect, test } from "vitest";
import { BlockSplitter } from "../../../src/webview/blocks";

const LONG_TEXT = [
  "# Title\n\nA paragraph\nof two lines with [a name][n].\n\n",
  "- one\n- two\n\n  still two\n\n1. first\n2. second\n\n",
  "```python\nx = 1\n\ny = 2\n```\n\n",
  "| a | b |\n|---|---|\n| 1 | 2 |\n\n",
  "> quoted\n> more\n\n    indented code\n\nHeading\n=======\n\n---\n\n<div>raw</div>\n\n[n]: https://example.com\n\nThe end",
].join("");

function types(splitter: BlockSplitter, text: string, live = true): string[] {
  return splitter.update(text, live).map(({ token }) => token.type);
}

test("streamed letter by letter, the blocks are in the end those of the whole text", () => {
  const streamed = new BlockSplitter();
  for (let end = 1; end <= LONG_TEXT.length; end += 1) streamed.update(LONG_TEXT.slice(0, end), true);
  const whole = new BlockSplitter().update(LONG_TEXT, false);
  expect(streamed.update(LONG_TEXT, false).map(({ raw, token }) => [token.type, raw.trim()])).toEqual(
    whole.map(({ raw, token }) => [token.type, raw.trim()]),
  );
  expect(whole.map(({ token }) => token.type)).toEqual([
    "heading",
    "paragraph",
    "list",
    "list",
    "code",
    "table",
    "blockquote",
    "code",
    "heading",
    "hr",
    "html",
    "paragraph",
  ]);
});

test("a delta leaves the settled blocks the same objects", () => {
  const splitter = new BlockSplitter();
  const before = splitter.update("One\n\nTwo\n\nThree\n", true);
  const after = splitter.update("One\n\nTwo\n\nThree\nand more", true);
  expect(after[0]).toBe(before[0]);
  expect(after[1]).toBe(before[1]);
  expect(after[2]?.raw).toBe("Three\nand more");
});

test("code whose fence is not closed yet is code to the end", () => {
  const [text, code] = new BlockSplitter().update("Look:\n\n```js\nlet x = `**no bold**`;\n\n- no list", true);
  expect(text?.token.type).toBe("paragraph");
  expect(code?.token).toMatchObject({ type: "code", lang: "js", text: "let x = `**no bold**`;\n\n- no list" });
});

test("a line that begins like a heading belongs to its paragraph if it turns out to be none", () => {
  const splitter = new BlockSplitter();
  expect(types(splitter, "One\n#")).toEqual(["paragraph", "heading"]);
  expect(types(splitter, "One\n#two")).toEqual(["paragraph"]);
});

test("text that is replaced is read anew", () => {
  const splitter = new BlockSplitter();
  types(splitter, "One\n\nTwo\n\nThree\n");
  expect(types(splitter, "# Other")).toEqual(["heading"]);
});

test("line ends of Windows make the same blocks", () => {
  expect(types(new BlockSplitter(), "One\r\n\r\n```\r\nx\r\n```\r\n")).toEqual(["paragraph", "code"]);
});

test("a paragraph without end is cut, and nothing of it is lost", () => {
  const text = "A sentence with words. ".repeat(2000);
  const splitter = new BlockSplitter();
  for (let end = 0; end < text.length; end += 997) splitter.update(text.slice(0, end), true);
  const blocks = splitter.update(text, false);
  expect(blocks.length).toBeGreaterThan(5);
  expect(Math.max(...blocks.map(({ raw }) => raw.length))).toBeLessThan(8_000);
  expect(blocks.map(({ raw }) => raw.trim()).join(" ")).toBe(text.trim());
});

test("a numbered list without end goes on counting where it is cut", () => {
  const text = Array.from({ length: 1000 }, (_, index) => `${index + 1}. An entry of the list\n`).join("");
  const lists = new BlockSplitter().update(text, false).map(({ token }) => token);
  expect(lists.length).toBeGreaterThan(1);
  expect(lists.every(({ type }) => type === "list")).toBe(true);
  const second = lists[1];
  const first = lists[0];
  if (first?.type !== "list" || second?.type !== "list") throw new Error("There are no two lists");
  expect((second as unknown as { start: number }).start).toBe((first as unknown as { items: unknown[] }).items.length + 1);
});

test("a name is a link once its definition has come, though its block was settled before", () => {
  const splitter = new BlockSplitter();
  splitter.update("See [the page][p].\n\nMore\n\nAnd more\n", true);
  const [first] = splitter.update("See [the page][p].\n\nMore\n\nAnd more\n\n[p]: https://example.com\n", true);
  expect(JSON.stringify(first?.token)).toContain("https://example.com");
});

test("the end of a long table may wait while it streams and is there when it is whole", () => {
  const rows = "| a | b |\n".repeat(2000);
  const table = `| a | b |\n|---|---|\n${rows}`;
  const splitter = new BlockSplitter();
  splitter.update(table, true);
  expect(splitter.update(`${table}| last | row |\n`, true)[0]?.raw).not.toContain("last");
  expect(splitter.update(`${table}| last | row |\n`, false)[0]?.raw).toContain("last");
});
