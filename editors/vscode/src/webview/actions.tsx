/** What can be done with a message: copied, and one of the user's edited and sent again. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { JSX } from "preact";
import type { Attachment, ShownAttachment } from "../core/messages";
import { useView } from "./context";
import { Icon } from "./icons";
import { copyText } from "./markdown";

interface ActionsProps {
  readonly text: string;
  /** What a message of the user's was sent with; without it the message cannot be sent again. */
  readonly attachments?: readonly ShownAttachment[];
}

export function Actions({ text, attachments }: ActionsProps): JSX.Element {
  const { bus } = useView();
  const [copied, setCopied] = useState(false);
  const timer = useRef<ReturnType<typeof setTimeout>>();
  useEffect(
    () => () => {
      clearTimeout(timer.current);
    },
    [],
  );
  return (
    <div class="actions">
      <button
        type="button"
        class="plain"
        title="Copy"
        aria-label="Copy the message"
        onClick={() => {
          void copyText(text).then(() => {
            setCopied(true);
            timer.current = setTimeout(setCopied, 1500, false);
          });
        }}
      >
        <Icon name={copied ? "check" : "copy"} />
      </button>
      {attachments && (
        <button
          type="button"
          class="plain"
          title="Edit and send again"
          aria-label="Edit the message and send it again"
          onClick={() => {
            bus.emit("compose", { text, attachments: attachments.flatMap(again) });
          }}
        >
          <Icon name="edit" />
        </button>
      )}
    </div>
  );
}

/** The attachment as it can be sent again, if it can. */
function again({ label, uri, preview }: ShownAttachment): readonly Attachment[] {
  const image = /^data:([^;,]+);base64,(.*)$/s.exec(preview ?? "");
  if (image?.[1] !== undefined && image[2] !== undefined) return [{ kind: "image", label, mimeType: image[1], data: image[2] }];
  return uri?.startsWith("file:") === true ? [{ kind: "file", uri, label }] : [];
}
