import { afterEach, expect, test, vi } from "vitest";
import { fileEntry, filesLike, foldersLike } from "../../../src/web/names.js";

afterEach(() => {
  vi.unstubAllGlobals();
});

function answers(status: number, body: string): string[] {
  const asked: string[] = [];
  vi.stubGlobal("fetch", (path: string) => {
    asked.push(path);
    return Promise.resolve(new Response(body, { status }));
  });
  return asked;
}

test("a file goes along with the prompt, a folder is only named", () => {
  expect(fileEntry("/w/a b/", "src/100%.py")).toEqual({
    insert: "src/100%.py",
    label: "100%.py",
    detail: "src/100%.py",
    attachment: { kind: "file", uri: "file:///w/a%20b/src/100%25.py", label: "src/100%.py" },
  });
  expect(fileEntry("/w", "src/in/")).toEqual({ insert: "src/in/", label: "in", detail: "src/in/" });
});

test("names are asked for, and whatever is no list of them is none", async () => {
  const asked = answers(200, '["/w/a", 7]');
  expect(await foldersLike("/w/&")).toEqual(["/w/a"]);
  expect(asked).toEqual(["/folders?path=%2Fw%2F%26"]);
  for (const [status, body] of [
    [403, '["x"]'],
    [200, "{}"],
    [200, "<"],
  ] as const) {
    answers(status, body);
    expect(await filesLike("/w", "x")).toEqual([]);
  }
});
