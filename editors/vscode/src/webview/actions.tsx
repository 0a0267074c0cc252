/** What can be done with a message: copied, and one of the user's edited and sent again. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { JSX } from "preact";
import { sentAgain } from "../core/contentBlocks";
import type { ShownAttachment } from "../core/messages";
import { useFact, useView } from "./context";
import { IconButton } from "./icons";
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
      <IconButton
        icon={copied ? "check" : "copy"}
        label="Copy the message"
        title="Copy"
        act={() => {
          void copyText(text).then(() => {
            setCopied(true);
            timer.current = setTimeout(setCopied, 1500, false);
          });
        }}
      />
      {attachments && may.prompt && (
        <IconButton
          icon="edit"
          label="Edit the message and send it again"
          title="Edit and send again"
          act={() => {
            bus.emit("compose", { text, attachments: attachments.flatMap(sentAgain) });
          }}
        />
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
      <IconButton
        icon="restore"
        label="Restore to here"
        title="Restore to here: take back what the agent changed since, or the chat, or both"
        act={() => {
          post({ type: "restore", prompt });
        }}
      />
      {fork && (
        <IconButton
          icon="fork"
          label="Fork from here"
          title="Fork from here: a new session with the chat before this message"
          act={() => {
            post({ type: "fork", prompt });
          }}
        />
      )}
    </>
  );
}
