/** Shows a tool's card wherever it is, unfolding everything above it first. */
import type { ToolCard } from "../core/messages";
import type { View } from "./context";

interface Cards {
  tool(id: string): ToolCard | undefined;
}

/** The calls above the call `id`, the nearest first. */
export function ancestors(id: string, cards: Cards): readonly string[] {
  const found: string[] = [];
  for (let at = cards.tool(id)?.parentId; at !== undefined && !found.includes(at); at = cards.tool(at)?.parentId) found.push(at);
  return found;
}

/** Whether the call `id` was made, at whatever depth, below the call `ancestor`. */
export function isBelow(id: string, ancestor: string, cards: Cards): boolean {
  return ancestors(id, cards).includes(ancestor);
}

export function reveal(toolCallId: string, { store, memory, bus }: View): void {
  const group = document.querySelector(`[data-group~="${CSS.escape(toolCallId)}"]`)?.getAttribute("data-group")?.split(" ", 1) ?? [];
  const keys = [`tool:${toolCallId}`, ...ancestors(toolCallId, store).map((id) => `children:${id}`), ...group.map((id) => `group:${id}`)];
  for (const key of keys) memory.setOpen(key, true);
  bus.emit("unfolded", keys);
  bus.emit("reveal", undefined);
  requestAnimationFrame(() => {
    const card = document.querySelector(`[data-tool="${CSS.escape(toolCallId)}"]`);
    if (!card) return;
    card.scrollIntoView({ block: "nearest" });
    card.classList.add("revealed");
    card.addEventListener(
      "animationend",
      () => {
        card.classList.remove("revealed");
      },
      { once: true },
    );
  });
}
