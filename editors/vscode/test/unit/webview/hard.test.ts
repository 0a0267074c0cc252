// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { BlockSplitter } from "../../../src/webview/blocks";
import { htmlOf } from "../../../src/webview/markdown";

function html(text: string): string {
  return new BlockSplitter()
    .update(text, false)
    .map(({ token }) => htmlOf(token))
    .join("");
}

describe("Markdown that would stop the view", () => {
  it.each([
    ["a quotation of 5,000 levels", "> ".repeat(5000) + "end"],
    ["a list of 5,000 levels", "- ".repeat(5000) + "end"],
    ["100,000 opened brackets", "[".repeat(100_000)],
    ["60,000 characters of opened emphasis", "__a ".repeat(15_000)],
  ])("is shown as the words it is: %s", (_, text) => {
    const shown = html(text);
    expect(shown).not.toMatch(/<blockquote|<li|<strong/u);
    expect(shown).toContain(text.trim().slice(-3).replace(/>/gu, "&gt;"));
  });

  it("does not take the form from a long text with much code in it", () => {
    const code = "```js\n" + "a[b]_c*d ".repeat(5000) + "\n```\n";
    expect(html(`# Title\n\n${code}\n**bold**`)).toMatch(/<h1>[^]*<strong>bold/u);
    expect(html("**a** [b] `c`\n\n".repeat(2000))).toContain("<strong>a</strong>");
  });
});
