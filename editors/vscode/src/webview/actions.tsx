/** What can be done with a message: copied, and one of the user's edited and sent again. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { JSX } from "preact";
import { sentAgain } from "../core/contentBlocks";
import type { ShownAttachment } from "../core/messages";
import { useFact, useView } from "./context";
import { Icon } from "./icons";
import { copyText } from "./markdown";

interface ActionsProps {
  readonly text: string;
  /** What a message of the user's was sent with; without it the message cannot be sent again. */
  readonly attachments?: readonly ShownAttachment[];
  /** The item of a message of the user's: with its number it can be gone back to. */
  readonly item?: string;
}

export function Actions({ text, attachments, item }: ActionsProps): JSX.Element {
  const { bus } = useView();
  const may = useFact("may");
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
      {attachments && may.prompt && (
        <button
          type="button"
          class="plain"
          title="Edit and send again"
          aria-label="Edit the message and send it again"
          onClick={() => {
            bus.emit("compose", { text, attachments: attachments.flatMap(sentAgain) });
          }}
        >
          <Icon name="edit" />
        </button>
      )}
      {item !== undefined && <Back item={item} />}
    </div>
  );
}

/** To before a message: taking back what followed, or going on from there in a new session. */
function Back({ item }: { readonly item: string }): JSX.Element | null {
  const { post } = useView();
  const { of, fork } = useFact("prompts");
  const running = useFact("running");
  const may = useFact("may");
  const prompt = of[item];
  if (prompt === undefined || running || !may.prompt) return null;
  return (
    <>
      <button
        type="button"
        class="plain"
        title="Restore to here: take back what the agent changed since, or the chat, or both"
        aria-label="Restore to here"
        onClick={() => {
          post({ type: "restore", prompt });
        }}
      >
        <Icon name="restore" />
      </button>
      {fork && (
        <button
          type="button"
          class="plain"
          title="Fork from here: a new session with the chat before this message"
          aria-label="Fork from here"
          onClick={() => {
            post({ type: "fork", prompt });
          }}
        >
          <Icon name="fork" />
        </button>
      )}
    </>
  );
}
