import { expect, it } from "vitest";
import { Chord } from "../../../src/webview/chord";

const key = (name: string, ctrlKey = false): { key: string; ctrlKey: boolean; metaKey: boolean } => ({ key: name, ctrlKey, metaKey: false });

it("takes the key after Ctrl+K, whatever it is, and no other", () => {
  const clock = { now: 0 };
  const chord = new Chord(() => clock.now);
  expect([key("y"), key("k", true), key("Shift"), key("Y"), key("y")].map((pressed) => chord.takes(pressed))).toEqual([false, false, false, true, false]);
  chord.takes(key("k", true));
  clock.now = 6_000;
  expect(chord.takes(key("y"))).toBe(false);
});
