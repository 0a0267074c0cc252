// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { isToken, knock, nameSession, sessionOfAddress, tokenOfAddress } from "../../../src/web/entrance.js";
import { folders, forgetAll, keepFolder, keepSession, keepViewState, lastSession, viewState } from "../../../src/web/kept.js";

beforeEach(() => {
  history.replaceState(null, "", "/");
  localStorage.clear();
  sessionStorage.clear();
});
afterEach(() => {
  vi.unstubAllGlobals();
});

test("the token of a link is taken off the address", () => {
  history.replaceState(null, "", "/#token=acp_abc-_1");
  expect(tokenOfAddress()).toBe("acp_abc-_1");
  expect(location.href).not.toContain("token");
  expect(tokenOfAddress()).toBeUndefined();
  history.replaceState(null, "", "/#token=a%0Ab");
  expect(tokenOfAddress()).toBeUndefined();
  expect([isToken(""), isToken("a b"), isToken("x".repeat(1025))]).toEqual([false, false, false]);
});

test("the address names the session that is open", () => {
  nameSession("one");
  expect(sessionOfAddress()).toBe("one");
  const before = history.length;
  nameSession("one");
  expect(history.length).toBe(before);
  nameSession("two");
  expect(history.length).toBe(before + 1);
  nameSession(undefined);
  expect(sessionOfAddress()).toBeUndefined();
});

test("the server's answer says whether one is in", async () => {
  const asked: RequestInit[] = [];
  for (const [status, found] of [[204, "in"], [401, "out"], [403, "out"], [429, "full"], [503, "full"]] as const) {
    vi.stubGlobal("fetch", (_: string, init: RequestInit) => {
      asked.push(init);
      return Promise.resolve({ status });
    });
    expect(await knock("acp_x")).toBe(found);
  }
  expect(asked[0]?.headers).toEqual({ Authorization: "Bearer acp_x" });
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("offline")));
  expect(await knock()).toBe("offline");
});

test("the last folders and the last session are kept, until one logs out", () => {
  for (const folder of ["/a", "/b", "/a"]) keepFolder(folder);
  expect(folders()).toEqual(["/a", "/b"]);
  keepSession({ id: "s", cwd: "/a" });
  expect(lastSession()).toEqual({ id: "s", cwd: "/a" });
  keepViewState({ text: "half a prom" });
  expect(viewState()).toEqual({ text: "half a prom" });
  localStorage.setItem("acp-coder.folders", "{");
  expect(folders()).toEqual([]);
  forgetAll();
  expect([lastSession(), viewState()]).toEqual([undefined, null]);
});
