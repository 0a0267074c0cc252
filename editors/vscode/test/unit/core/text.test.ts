import { describe, expect, it } from "vitest";
import { diffLines, lastChange, lineAfter, smallestChange } from "../../../src/core/lines.js";
import { OutputBuffer } from "../../../src/core/outputBuffer.js";
import { labelOfUri } from "../../../src/core/uris.js";
import { wholeFile } from "../../../src/core/wholeFile.js";
import { duration, messageOf, plain, plainText, short, visible, withoutIcons, unfenced } from "../../../src/core/words.js";

describe("smallestChange", () => {
  const apply = (before: string, after: string): string => {
    const change = smallestChange(before, after);
    return change === undefined ? before : before.slice(0, change.start) + change.text + before.slice(change.end);
  };

  it("gives the text that was wanted, whatever the two texts are", () => {
    let seed = 7;
    const next = (most: number): number => {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      return seed % most;
    };
    const alphabet = ["a", "b", "\n", "\r\n", "😀", "é", "aa"];
    const text = (): string => Array.from({ length: next(12) }, () => alphabet[next(alphabet.length)] ?? "").join("");
    for (let round = 0; round < 3000; round += 1) {
      const [before, after] = [text(), text()];
      expect(apply(before, after)).toBe(after);
    }
  });

  it("never cuts a character or a line break in two", () => {
    const astral = smallestChange("x😀y", "x😁y");
    expect(astral).toEqual({ start: 1, end: 3, text: "😁" });
    const breaks = smallestChange("a\r\nb", "a\r\n\r\nb");
    expect(apply("a\r\nb", "a\r\n\r\nb")).toBe("a\r\n\r\nb");
    expect(breaks?.text).not.toMatch(/^\n|\r$/u);
  });

  it("changes nothing where nothing changes", () => {
    expect(smallestChange("same", "same")).toBeUndefined();
  });
});

describe("lineAfter", () => {
  const edit = (startLine: number, endLine: number, newBreaks: number, atLineStart = false) => ({ startLine, endLine, newBreaks, atLineStart });

  it("moves lines below an insertion and leaves those above", () => {
    expect(lineAfter(4, edit(2, 2, 3))).toBe(7);
    expect(lineAfter(1, edit(2, 2, 3))).toBe(1);
  });

  it("moves a line that text with a break is put before, not one that it is put into", () => {
    expect(lineAfter(2, edit(2, 2, 1, true))).toBe(3);
    expect(lineAfter(2, edit(2, 2, 1))).toBe(2);
  });

  it("takes a line that was deleted to the place where it was", () => {
    expect(lineAfter(5, edit(3, 8, 0))).toBe(3);
    expect(lineAfter(9, edit(3, 8, 0))).toBe(4);
  });
});

describe("diffLines", () => {
  it.each([
    ["", "a\nb\n", ["+a", "+b"]],
    ["a\nb\n", "", ["-a", "-b"]],
    ["a\nb\nc\n", "a\nx\nc\n", [" a", "-b", "+x", " c"]],
    ["a\nb\nc\nd\n", "b\nc\nd\ne\n", ["-a", " b", " c", " d", "+e"]],
    ["1\n2\n3\n4\n5\n", "1\n2\n3\n4\nx\n", ["@", " 2", " 3", " 4", "-5", "+x"]],
    ["x\n2\n3\n4\n5\n6\n7\n8\n9\nx", "y\n2\n3\n4\n5\n6\n7\n8\n9\ny", ["-x", "+y", " 2", " 3", " 4", "@", " 7", " 8", " 9", "-x", "+y"]],
    ["a\r\nb", "a\nb", []],
    ["a", "a\n", []],
  ])("of %j and %j", (before, after, lines) => {
    expect(diffLines(before, after)).toEqual(lines);
  });

  it("shows a rewritten file of many lines without comparing each with each", () => {
    const lines = (word: string): string => Array.from({ length: 5000 }, (_, index) => `${word} ${String(index)}`).join("\n");
    const shown = diffLines(lines("a"), lines("b"));
    expect([shown.length, shown[0], shown[9999]]).toEqual([10_000, "-a 0", "+b 4999"]);
  });

  it("knows the last line that is changed", () => {
    expect(lastChange("a\nb\nc\n", "a\nx\nc\n")).toBe(1);
    expect(lastChange("a\nb\n", "a\n")).toBe(0);
    expect(lastChange("", "a\nb\n")).toBe(1);
  });
});

describe("OutputBuffer", () => {
  it("keeps the end, and never more bytes than the limit", () => {
    const buffer = new OutputBuffer(10);
    for (let index = 0; index < 100_000; index += 1) {
      buffer.write(Buffer.from(String(index % 10)));
    }
    expect(buffer.text()).toBe("0123456789");
    expect(buffer.truncated).toBe(true);
  });

  it("cuts at a character", () => {
    const buffer = new OutputBuffer(6);
    buffer.write(Buffer.from("ä😀ö"));
    expect(buffer.text()).toBe("😀ö");
    expect(buffer.truncated).toBe(true);
  });

  it("puts a character together that came in two pieces, and waits for its end", () => {
    const buffer = new OutputBuffer(100);
    const bytes = Buffer.from("😀");
    buffer.write(bytes.subarray(0, 2));
    expect(buffer.text()).toBe("");
    buffer.write(bytes.subarray(2));
    expect(buffer.text()).toBe("😀");
    expect(buffer.truncated).toBe(false);
  });

  it("gives its last bytes, from a character on, without the rest", () => {
    const buffer = new OutputBuffer(1000);
    for (const piece of ["a".repeat(500), "😀", "bc"]) {
      buffer.write(Buffer.from(piece));
    }
    expect([buffer.tail(6), buffer.tail(5), buffer.tail(2), buffer.tail(10_000).length]).toEqual(["😀bc", "bc", "bc", 504]);
  });

  it("keeps nothing where the limit is 0", () => {
    const buffer = new OutputBuffer(0);
    buffer.write(Buffer.from("x"));
    expect([buffer.text(), buffer.truncated]).toEqual(["", true]);
  });
});

describe("wholeFile", () => {
  it("puts the rest of the file around a fragment, before the change and after it", () => {
    expect(wholeFile("b", "B", "a\nb\nc", false)).toEqual({ before: "a\nb\nc", after: "a\nB\nc" });
    expect(wholeFile("b", "B", "a\nB\nc", true)).toEqual({ before: "a\nb\nc", after: "a\nB\nc" });
  });

  it("leaves what the agent sent where the fragment is not unique, the file is new or the text is whole", () => {
    expect(wholeFile("b", "B", "b\nb", false)).toEqual({ before: "b", after: "B" });
    expect(wholeFile("", "new", undefined, false)).toEqual({ before: "", after: "new" });
    expect(wholeFile("all", "ALL", "all", false)).toEqual({ before: "all", after: "ALL" });
  });
});

describe("words", () => {
  it("takes the code block off that is around the whole of a text, also if it was cut", () => {
    expect(unfenced("```\na\nb\n```")).toBe("a\nb");
    expect(unfenced("````\n```\nx\n```\n````")).toBe("```\nx\n```");
    expect(unfenced("```\nthe beg")).toBe("the beg");
    expect(unfenced("```\na\n```\nand words")).toBe("```\na\n```\nand words");
    expect(unfenced("plain")).toBe("plain");
  });

  it("takes control sequences out and keeps what a terminal would show", () => {
    expect(plainText("\u001b[31mred\u001b[0m\r\n10%\r100%\n\u001b]0;title\u0007ok\u0000")).toBe("red\n100%\nok");
  });

  it("says durations as a user would", () => {
    expect([0, 1234, 59_999, 125_000].map(duration)).toEqual(["0.0 s", "1.2 s", "59 s", "2 min 5 s"]);
  });

  it("cuts between characters", () => {
    expect(short("😀😀😀😀", 3)).toBe("😀😀…");
    expect(short(" a\n b ", 10)).toBe("a b");
  });

  it("finds the words of an error, with the details that JSON-RPC hides in data", () => {
    expect(messageOf({ code: -32603, message: "Internal error", data: { details: "the disk is full" } })).toBe("Internal error: the disk is full");
    expect(messageOf(new Error("plain"))).toBe("plain");
    expect(messageOf("text")).toBe("text");
    expect(messageOf(undefined)).toBe("undefined");
  });

  it("makes no links and no icons of a stranger's words, and shows what hides", () => {
    expect(plain("[x](command:y)")).not.toMatch(/\[[^\]]+\]\(command:/u);
    expect(withoutIcons("$(check) done")).not.toContain("$(");
    expect(visible("a\u202eb\u200bc")).toBe("a\\u202eb\\u200bc");
    expect(visible("a\u3164b\u{e0041}c")).toBe("a\\u3164b\\U000e0041c");
    expect(visible("a\u001b[2J\r\nb\rc\td\u0007")).toBe("a\\x1b[2J\nb\\x0dc\td\\x07");
    expect(visible("ümläut 😀 日本語")).toBe("ümläut 😀 日本語");
  });

  it("names a place by its last part and its lines", () => {
    expect(labelOfUri("file:///p/a%20b.py#L3-9")).toBe("a b.py:3-9");
    expect(labelOfUri("/p/c.py")).toBe("c.py");
    expect(labelOfUri("file:///p/%zz")).toBe("%zz");
  });
});
