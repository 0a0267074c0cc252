/** What is given along with a prompt, as chips: those to be sent can be removed, those sent can be opened. */
import type { JSX } from "preact";
import type { Attachment, ShownAttachment } from "../core/messages";
import { useView } from "./context";
import { Icon } from "./icons";

/** How an attachment looks, whether it was sent or not. */
export function shownOf(attachment: Attachment): ShownAttachment {
  const { kind, label } = attachment;
  switch (kind) {
    case "image":
      return { kind, label, preview: `data:${attachment.mimeType};base64,${attachment.data}` };
    case "problems":
    case "text":
      return { kind, label };
    case "session":
      return { kind: "resource", label };
    case "page":
      return { kind: "resource", label, uri: attachment.uri };
    case "file":
    case "selection":
      return { kind, label, uri: attachment.uri };
  }
}

/** Whether both mean the same thing, so that one of them is enough. */
export function isSame(one: Attachment, other: Attachment): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

interface ChipProps {
  readonly shown: ShownAttachment;
  readonly remove?: () => void;
}

export function AttachmentChip({ shown, remove }: ChipProps): JSX.Element {
  const { post } = useView();
  const { kind, label, preview, uri } = shown;
  const face = (
    <>
      {preview?.startsWith("data:image/") === true ? <img src={preview} alt="" /> : <Icon name={kind} />}
      <span class="label">{label}</span>
    </>
  );
  return (
    <li class={`chip ${kind}`}>
      {uri === undefined ? (
        <span class="face">{face}</span>
      ) : (
        <button
          type="button"
          class="face"
          title={label}
          onClick={() => {
            post({ type: "openLink", href: uri });
          }}
        >
          {face}
        </button>
      )}
      {remove && (
        <button type="button" class="remove" onClick={remove} title={`Remove ${label}`} aria-label={`Remove ${label}`}>
          <Icon name="close" />
        </button>
      )}
    </li>
  );
}
