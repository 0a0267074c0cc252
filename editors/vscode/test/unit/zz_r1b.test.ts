import { it } from "vitest";
import { plainText } from "../../src/core/words.js";
import { OutputBuffer } from "../../src/core/outputBuffer.js";
import { countChanges } from "../../src/core/lines.js";
import { BlockSplitter } from "../../src/webview/blocks.js";
import { ToolCalls } from "../../src/core/toolCalls.js";
const t = (name: string, f: () => unknown) => { const a = performance.now(); f(); console.log(name, (performance.now() - a).toFixed(0), "ms"); };
it("bench", () => {
  const b = new OutputBuffer(1024 * 1024);
  for (let i = 0; i < 30; i++) b.write(Buffer.from("some line of output \u001b[32mgreen\u001b[0m\n".repeat(1600)));
  t("facts 1MiB", () => plainText(b.text()).slice(-4000));
  t("facts 1MiB again", () => plainText(b.text()).slice(-4000));
  const big = new OutputBuffer(64 * 1024 * 1024);
  for (let i = 0; i < 64; i++) big.write(Buffer.from("y\n".repeat(512 * 1024)));
  t("facts 64MiB", () => plainText(big.text()).slice(-4000));
  const o = Array.from({ length: 2000 }, (_, i) => `a${i}`).join("\n"), n = Array.from({ length: 2000 }, (_, i) => `b${i}`).join("\n");
  t("countChanges 2000x2000", () => countChanges(o, n));
  for (const [name, text] of [["[", "[".repeat(20000)], ["[ 100k", "[".repeat(100000)], ["*a", "*a ".repeat(20000)], ["![](", "![](".repeat(10000)], ["> ", "> ".repeat(5000) + "x"], ["`", Array.from({ length: 1500 }, (_, i) => "`".repeat(i % 300 + 1)).join(" ")], ["<", "<a ".repeat(20000)], ["_", "__a".repeat(20000)], ["|", "|a".repeat(10000) + "\n" + "|-".repeat(10000) + "\n"], ["- ", "- ".repeat(3000)+"x"], ["a@", "a@".repeat(20000)], ["http", "http://a".repeat(10000)], ["\\n- nested", Array.from({length:400},(_, i)=>" ".repeat(i*2)+"- x").join("\n")]] as const) {
    t(`md ${name} ${text.length}`, () => { try { new BlockSplitter().update(text, false); } catch (e) { console.log(name, String(e).slice(0, 100)); } });
  }
  const c = new ToolCalls(); let k = 0; c.changed.on(() => { k += c.running().length; });
  t("10000 calls with running() each", () => { for (let i = 0; i < 5000; i++) c.apply("s", { toolCallId: `c${i}`, title: "x", status: "in_progress" }, { turn: 1, replayed: false }); });
  t("tree items 5000", () => { for (let i = 0; i < 5000; i++) c.list("s").some((o) => o.parentId === `c${i}`); });
}, 120000);
