/** One item of the conversation, drawn anew when it changes and at no other time. */
import { memo } from "preact/compat";
import type { JSX } from "preact";
import type { Item } from "../core/messages";
import { Actions } from "./actions";
import { AttachmentChip } from "./attachments";
import { useChunks, useFact, useItem, useOpen, useTool, useView } from "./context";
import { Icon, Spinner } from "./icons";
import { Markdown } from "./markdown";
import { Picture } from "./picture";
import { Tool } from "./tool";

interface ItemProps {
  readonly id: string;
  /** It is the last of a turn that runs. */
  readonly live: boolean;
}

export const ItemView = memo(({ id, live }: ItemProps): JSX.Element | null => {
  const item = useItem(id);
  if (!item) return null;
  if (item.type === "tool") return <ToolItem item={item} />;
  return (
    <div class={`item from-${item.type}`} data-item={id}>
      <Body item={item} live={live} />
    </div>
  );
});

type ToolItemValue = Extract<Item, { type: "tool" }>;

/** The card, unless it stands below the card of the sub-agent's call. */
function ToolItem({ item }: { readonly item: ToolItemValue }): JSX.Element | null {
  const parent = useTool(item.toolCallId)?.parentId;
  const parentCard = useTool(parent ?? "");
  if (parent !== undefined && parent !== item.toolCallId && parentCard) return null;
  return (
    <div class="item from-tool" data-item={item.id}>
      <Tool id={item.toolCallId} />
    </div>
  );
}

interface BodyProps {
  readonly item: Exclude<Item, ToolItemValue>;
  readonly live: boolean;
}

function Body({ item, live }: BodyProps): JSX.Element {
  switch (item.type) {
    case "user":
      return (
        <>
          <div class="bubble" role="group" aria-label="You">
            {item.text !== "" && <div class="said">{item.text}</div>}
            {item.attachments.length > 0 && (
              <ul class="chips" aria-label="Attached">
                {item.attachments.map((attachment, index) => (
                  <AttachmentChip key={index} shown={attachment} />
                ))}
              </ul>
            )}
          </div>
          {item.text !== "" && <Actions text={item.text} attachments={item.attachments} item={item.id} />}
        </>
      );
    case "agent":
      return (
        <>
          <Markdown text={item.text} live={live} />
          {!live && <Actions text={item.text} />}
        </>
      );
    case "thought":
      return <Thought id={item.id} text={item.text} live={live} />;
    case "image":
      return <Picture mimeType={item.mimeType} data={item.data} />;
    case "notice":
      return (
        <div class={`notice ${item.severity}`} role="note">
          <Icon name={item.severity} />
          <div>
            <strong>{item.title}</strong>
            {item.text !== "" && <Markdown text={item.text} />}
            {item.offer !== undefined && <Offer id={item.id} offer={item.offer} />}
          </div>
        </div>
      );
  }
}

/** As long as nothing came after the prompt that failed, or was interrupted. */
function Offer({ id, offer }: { readonly id: string; readonly offer: "again" | "continue" }): JSX.Element | null {
  const { post, store } = useView();
  const running = useFact("running");
  const may = useFact("may");
  useChunks();
  if (running || !may.prompt || store.lastItem()?.id !== id) return null;
  return (
    <button
      type="button"
      class="secondary"
      onClick={() => {
        post(offer === "again" ? { type: "again" } : { type: "send", text: "Continue where you stopped.", attachments: [] });
      }}
    >
      {offer === "again" ? "Try again" : "Continue"}
    </button>
  );
}

function Thought({ id, text, live }: { readonly id: string; readonly text: string; readonly live: boolean }): JSX.Element {
  const [open, setOpen] = useOpen(`thought:${id}`, false);
  return (
    <details
      class="thought"
      open={open}
      onToggle={(event) => {
        if (event.currentTarget.open !== open) setOpen(event.currentTarget.open);
      }}
    >
      <summary>
        <Icon name="chevron" class="chevron" />
        {live ? <Spinner /> : <Icon name="think" />}
        <span>{live ? "Thinking…" : "Thought"}</span>
      </summary>
      {open && <Markdown text={text} live={live} />}
    </details>
  );
}
