/** What the agent read and searched in a row, as one line: "Explored 3 files, 2 searches". */
import { memo } from "preact/compat";
import type { JSX } from "preact";
import type { ToolCard } from "../core/messages";
import { plural } from "../core/words";
import { useOpen, useTools, useView } from "./context";
import { FoldButton } from "./folds";
import { Icon, Spinner } from "./icons";
import type { Store } from "./store";
import { Tool } from "./tool";

/** The items of a conversation, and those of a row of at least two looks together. */
export function inGroups(ids: readonly string[], store: Store): readonly (readonly string[])[] {
  const groups: string[][] = [];
  let looked = false;
  for (const id of ids) {
    const looks = isLook(store, id);
    const last = groups.at(-1);
    if (looks && looked && last) last.push(id);
    else groups.push([id]);
    looked = looks;
  }
  return groups;
}

function isLook(store: Store, id: string): boolean {
  const item = store.item(id);
  const card = item?.type === "tool" ? store.tool(item.toolCallId) : undefined;
  return card !== undefined && card.parentId === undefined && (card.kind === "read" || card.kind === "search") && store.children(card.toolCallId).length === 0;
}

export const Group = memo(({ ids }: { readonly ids: readonly string[] }): JSX.Element => {
  const { store } = useView();
  const calls = ids.flatMap((id) => {
    const item = store.item(id);
    return item?.type === "tool" ? [item.toolCallId] : [];
  });
  const cards = useTools(calls);
  const [open, setOpen] = useOpen(`group:${calls[0] ?? ""}`, false);
  const runs = cards.some(({ status }) => status === "in_progress" || status === "pending");
  const failed = cards.filter(({ status }) => status === "failed").length;
  return (
    <div class="item from-tool group" data-item={ids[0]} data-group={calls.join(" ")}>
      <FoldButton open={open} setOpen={setOpen}>
        {runs ? <Spinner /> : <Icon name="search" />}
        <span>
          {runs ? "Exploring" : "Explored"} {wordsOf(cards)}
        </span>
        {failed > 0 && <span class="exit failed">{failed} failed</span>}
        <Icon name="chevron" class="chevron" />
      </FoldButton>
      {open && calls.map((id) => <Tool key={id} id={id} />)}
    </div>
  );
});

function wordsOf(cards: readonly ToolCard[]): string {
  const reads = cards.filter(({ kind }) => kind === "read");
  const files = new Set(reads.map(({ locations, title }) => locations[0]?.path ?? title)).size;
  const searches = cards.length - reads.length;
  return [...(files > 0 ? [plural(files, "file")] : []), ...(searches > 0 ? [plural(searches, "search", "searches")] : [])].join(", ");
}
