/** What the page asks its user, and long texts to read. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { DiffLines } from "../webview/diff";
import { IconButton } from "../webview/icons";
import type { Asked } from "./state";
import { usePage } from "./use";

export function Dialog(): JSX.Element | null {
  const asked = usePage("dialog");
  return asked === null ? null : <Open key={asked.title} asked={asked} />;
}

function Open({ asked }: { readonly asked: Asked }): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  const { title, lines = [], diffs = [], text, choices, answer } = asked;
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const isLong = diffs.length > 0 || text !== undefined;
  return (
    <dialog
      ref={element}
      class={isLong ? "long" : ""}
      aria-labelledby="dialog-title"
      onCancel={(event) => {
        event.preventDefault();
        answer(undefined);
      }}
      onClick={({ target, currentTarget }) => {
        if (target === currentTarget) answer(undefined);
      }}
    >
      <div class="inside">
        <div class="head">
          <h2 id="dialog-title">{title}</h2>
          <IconButton
            icon="close"
            label="Close"
            act={() => {
              answer(undefined);
            }}
          />
        </div>
        {lines.map((line, index) => (
          <p key={index}>{line}</p>
        ))}
        {isLong && (
          <div class="body" tabIndex={0} role="region" aria-label={text === undefined ? "Changes" : "Text"}>
            {text !== undefined && <pre>{text}</pre>}
            {diffs.map((diff, index) => (
              <section key={index} aria-label={diff.label}>
                <h3>{diff.label}</h3>
                {diff.lines.length > 0 && <DiffLines lines={diff.lines} />}
              </section>
            ))}
          </div>
        )}
        {choices.length > 0 && (
          <div class="choices">
            {choices.map(({ id, label, detail, kind }) => (
              <button
                key={id}
                type="button"
                class={kind}
                onClick={() => {
                  answer(id);
                }}
              >
                <span>{label}</span>
                {detail !== undefined && <span class="scope">{detail}</span>}
              </button>
            ))}
            <button
              type="button"
              class="secondary"
              onClick={() => {
                answer(undefined);
              }}
            >
              Cancel
            </button>
          </div>
        )}
      </div>
    </dialog>
  );
}
