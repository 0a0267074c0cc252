/**
 * The box where the user writes, with what is attached, what can be completed, and the buttons to send and to stop.
 *
 * Enter sends, and queues while the agent works; an input method's Enter does not. Escape closes the list of
 * completions and does nothing else: stopping is a button.
 */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { JSX } from "preact";
import type { Attachment, Completion } from "../core/messages";
import { labelOfUri } from "../core/uris";
import { AttachmentChip, isSame, shownOf } from "./attachments";
import { useCompletion } from "./completion";
import { Chord } from "./chord";
import { useFact, useView } from "./context";
import { Recall, useDraft } from "./draft";
import { Pickers } from "./footer";
import { Icon, IconButton, Spinner } from "./icons";
import { readImages } from "./images";
import { Suggestions, suggestionId } from "./suggestions";
import { complete } from "./trigger";

const LIST = "suggestions";

export function Composer(): JSX.Element {
  const { store, memory, post, bus, inEditor } = useView();
  const agent = useFact("agent");
  const images = useFact("images");
  const running = useFact("running");
  const [draft, setDraft] = useDraft();
  const [message, setMessage] = useState("");
  const completing = useCompletion();
  const box = useRef<HTMLTextAreaElement>(null);
  /** Where the cursor goes once the text is drawn. */
  const cursor = useRef<number | null>(null);
  const [recall] = useState(() => new Recall(store));

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
    if (cursor.current !== null) element.setSelectionRange(cursor.current, cursor.current);
    cursor.current = null;
  }, [draft.text]);

  useEffect(() => {
    const ends = [
      bus.on("focus", () => {
        box.current?.focus();
      }),
      bus.on("compose", ({ text, attachments }) => {
        const before = memory.get();
        const gap = before.text === "" || text === "" || /\s$/.test(before.text) ? "" : "\n";
        const fresh = attachments.filter((one) => !before.attachments.some((other) => isSame(one, other)));
        const whole = before.text + gap + text;
        cursor.current = whole.length;
        setDraft({ text: whole, attachments: [...before.attachments, ...fresh] });
        box.current?.focus();
      }),
    ];
    return () => {
      for (const end of ends) end();
    };
  }, [bus]);

  const write = (text: string, at: number): void => {
    cursor.current = at;
    setDraft({ text });
    if (text === draft.text) box.current?.setSelectionRange(at, at);
  };

  const canSend = draft.text.trim() !== "" || draft.attachments.length > 0;
  const send = (): void => {
    if (!canSend) return;
    post({ type: "send", text: draft.text, attachments: draft.attachments });
    setDraft({ text: "", attachments: [] });
    setMessage("");
    completing.close();
    bus.emit("sent", undefined);
    box.current?.focus();
  };

  const take = (entry: Completion): void => {
    const { trigger } = completing;
    const element = box.current;
    if (!trigger || !element) return;
    const taken = complete(draft.text, element.selectionStart, trigger, entry);
    cursor.current = taken.cursor;
    const { attachment } = entry;
    const isNew = attachment && !draft.attachments.some((other) => isSame(attachment, other));
    setDraft({ text: taken.text, ...(isNew && { attachments: [...draft.attachments, attachment] }) });
    completing.close();
    element.focus();
  };

  const completionKey = (event: KeyboardEvent): boolean => {
    const { trigger, entries, active } = completing;
    if (!trigger) return false;
    if (event.key === "Escape") {
      completing.close();
      return true;
    }
    const entry = entries[active];
    if (!entry) return false;
    if (event.key === "ArrowDown") completing.move(1);
    else if (event.key === "ArrowUp") completing.move(-1);
    else if ((event.key === "Enter" && !event.shiftKey) || event.key === "Tab") take(entry);
    else return false;
    return true;
  };

  const recallKey = (event: KeyboardEvent): boolean => {
    if (event.shiftKey || event.altKey || event.ctrlKey || event.metaKey) return false;
    const text = event.key === "ArrowUp" ? recall.back(draft.text) : event.key === "ArrowDown" ? recall.forth(draft.text) : null;
    if (text === null) return false;
    write(text, text.length);
    return true;
  };

  const chord = useRef(new Chord());
  const keyDown = (event: KeyboardEvent): void => {
    // While an input method composes, each key is its own; 229 is what browsers tell then.
    // eslint-disable-next-line @typescript-eslint/no-deprecated -- Safari says it in no other way
    if (event.isComposing || event.keyCode === 229) return;
    if (inEditor && chord.current.takes(event)) {
      event.preventDefault();
      return;
    }
    let done = completionKey(event) || recallKey(event);
    if (!done && event.key === "Enter" && !event.shiftKey && !event.altKey) {
      send();
      done = true;
    }
    if (done) event.preventDefault();
  };

  const look = (element: HTMLTextAreaElement): void => {
    completing.look(element.value, element.selectionStart === element.selectionEnd ? element.selectionStart : -1);
  };

  const attach = (files: readonly File[]): void => {
    const shown = draft.attachments.filter(({ kind }) => kind === "image").length;
    readImages(files, images, shown + 1).then(
      ({ attachments, refused }) => {
        setDraft({ attachments: [...memory.get().attachments, ...attachments] });
        setMessage(refused);
      },
      () => {
        setMessage("The picture could not be read.");
      },
    );
  };

  const paste = (event: ClipboardEvent): void => {
    const files = [...(event.clipboardData?.files ?? [])].filter(({ type }) => type.startsWith("image/"));
    if (files.length === 0) return;
    event.preventDefault();
    attach(files);
  };

  /** Files of this device, or of the editor: VS Code gives their addresses (with Shift held). */
  const drop = (event: DragEvent): void => {
    const { files, dropped } = droppedOf(event.dataTransfer);
    if (files.length + dropped.length === 0) return;
    event.preventDefault();
    if (files.length > 0) attach(files);
    const known = memory.get().attachments;
    setDraft({ attachments: [...known, ...dropped.filter((one) => !known.some((other) => isSame(one, other)))] });
    box.current?.focus();
  };

  const isOpen = completing.trigger !== null && completing.entries.length > 0;
  return (
    <form
      class="composer"
      aria-label="Message"
      onDragOver={(event) => {
        event.preventDefault();
      }}
      onDrop={drop}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      {isOpen && <Suggestions id={LIST} entries={completing.entries} active={completing.active} take={take} />}
      <div class="input">
        {draft.attachments.length > 0 && (
          <ul class="chips" aria-label="Attachments">
            {draft.attachments.map((attachment, index) => (
              <AttachmentChip
                key={index}
                shown={shownOf(attachment)}
                remove={() => {
                  setDraft({ attachments: draft.attachments.filter((other) => other !== attachment) });
                  box.current?.focus();
                }}
              />
            ))}
          </ul>
        )}
        <textarea
          ref={box}
          rows={1}
          value={draft.text}
          placeholder={running ? `Add to what ${agent.name} does next` : `Ask ${agent.name}`}
          aria-label={`Message to ${agent.name}`}
          role="combobox"
          aria-autocomplete="list"
          aria-haspopup="listbox"
          aria-expanded={isOpen}
          aria-controls={isOpen ? LIST : undefined}
          aria-activedescendant={isOpen ? suggestionId(LIST, completing.active) : undefined}
          onInput={(event) => {
            setDraft({ text: event.currentTarget.value });
            setMessage("");
            look(event.currentTarget);
          }}
          onKeyDown={keyDown}
          onClick={(event) => {
            look(event.currentTarget);
          }}
          onKeyUp={(event) => {
            if (/^(?:Arrow(?:Left|Right)|Home|End)$/.test(event.key)) look(event.currentTarget);
          }}
          onPaste={paste}
          onBlur={completing.leave}
        />
        <div class="toolbar">
          {inEditor ? (
            <IconButton
              icon="attach"
              label="Attach files, the selection or problems"
              title="Attach files, the selection or problems (@)"
              act={() => {
                const element = box.current;
                if (!element) return;
                element.focus();
                const at = element.selectionStart;
                const sign = at > 0 && !/\s$/.test(draft.text.slice(0, at)) ? " @" : "@";
                const text = draft.text.slice(0, at) + sign + draft.text.slice(at);
                write(text, at + sign.length);
                completing.look(text, at + sign.length);
              }}
            />
          ) : (
            images && <PictureButton take={attach} />
          )}
          <Pickers />
          <Buttons canSend={canSend} />
        </div>
      </div>
      <div class="message" role="status">
        {message}
      </div>
    </form>
  );
}

/** Pictures, and files by their addresses. */
function droppedOf(data: DataTransfer | null): { readonly files: readonly File[]; readonly dropped: readonly Attachment[] } {
  const files = [...(data?.files ?? [])].filter(({ type }) => type.startsWith("image/"));
  // In a remote window the agent is where the files are.
  const addresses = (data?.getData("text/uri-list") ?? "")
    .split(/\r?\n/u)
    .map((address) => address.replace(/^vscode-remote:\/\/[^/]*/u, "file://"))
    .filter((address) => address.startsWith("file:"));
  return { files, dropped: files.length > 0 ? [] : addresses.map((uri) => ({ kind: "file", uri, label: labelOfUri(uri) })) };
}

/** Where there is no editor to attach files of: pictures of this device. */
function PictureButton({ take }: { readonly take: (files: readonly File[]) => void }): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <IconButton
        icon="attach"
        label="Attach pictures"
        title="Attach pictures"
        act={() => {
          input.current?.click();
        }}
      />
      <input
        ref={input}
        type="file"
        accept="image/png,image/jpeg,image/gif,image/webp"
        multiple
        hidden
        onChange={({ currentTarget }) => {
          take([...(currentTarget.files ?? [])]);
          currentTarget.value = "";
        }}
      />
    </>
  );
}

/** In place of the box for who may not prompt: what they may do instead. */
export function Onlooker(): JSX.Element {
  const may = useFact("may");
  return (
    <div class="onlooker" role="group" aria-label="What you may do">
      <p class="quiet">{may.answer ? "You look on, and may answer what the agent asks." : "You look on."}</p>
      {may.answer && <Buttons canSend={false} canPrompt={false} />}
    </div>
  );
}

function Buttons({ canSend, canPrompt = true }: { readonly canSend: boolean; readonly canPrompt?: boolean }): JSX.Element {
  const { post, inEditor } = useView();
  const running = useFact("running");
  const stopping = useFact("stopping");
  return (
    <div class="buttons">
      {running && (
        <button
          type="button"
          class="stop"
          disabled={stopping}
          title={stopping ? "Stopping…" : inEditor ? "Stop" : "Stop (Ctrl+.)"}
          onClick={() => {
            post({ type: "stop" });
          }}
        >
          {stopping ? <Spinner /> : <Icon name="stop" />}
          <span>{stopping ? "Stopping…" : "Stop"}</span>
        </button>
      )}
      {canPrompt && (!running || canSend) && (
        <button
          type="submit"
          class="send"
          disabled={!canSend}
          title={running ? "Send next (Enter)" : "Send (Enter)"}
          aria-label={running ? "Send next" : "Send"}
        >
          <Icon name={running ? "queue" : "send"} />
        </button>
      )}
    </div>
  );
}
