/** A folder on the server, completed as a shell does. */
import type { JSX, Ref } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Completion } from "../core/messages";
import { labelOfUri } from "../core/uris";
import { Suggestions, suggestionId } from "../webview/suggestions";
import { foldersLike } from "./names";

const LIST = "folders";
/** Milliseconds of typing before the server is asked. */
const DEBOUNCE = 120;

interface FolderFieldProps {
  readonly value: string;
  readonly wrong: boolean;
  readonly field: Ref<HTMLInputElement> & { readonly current: HTMLInputElement | null };
  readonly write: (folder: string) => void;
}

export function FolderField({ value, wrong, field, write }: FolderFieldProps): JSX.Element {
  const [entries, setEntries] = useState<readonly Completion[]>([]);
  /** None at first: Enter begins the session then. */
  const [active, setActive] = useState(-1);
  const timer = useRef<ReturnType<typeof setTimeout>>();
  const wanted = useRef("");
  const close = (): void => {
    clearTimeout(timer.current);
    wanted.current = "";
    setEntries([]);
    setActive(-1);
  };
  useEffect(() => close, []);
  const look = (path: string): void => {
    clearTimeout(timer.current);
    wanted.current = path;
    if (!path.startsWith("/")) {
      close();
      return;
    }
    timer.current = setTimeout(() => {
      void foldersLike(path).then((found) => {
        if (wanted.current !== path) return;
        setActive(-1);
        setEntries(found.filter((one) => one !== path).map((one) => ({ insert: one, label: `${labelOfUri(one)}/`, detail: "" })));
      });
    }, DEBOUNCE);
  };
  const take = (entry: Completion): void => {
    close();
    write(`${entry.insert}/`);
    look(`${entry.insert}/`);
    field.current?.focus();
  };
  const keyDown = (event: KeyboardEvent): void => {
    if (event.isComposing || entries.length === 0) return;
    const chosen = entries[active] ?? (event.key === "Tab" && !event.shiftKey ? entries[0] : undefined);
    if (event.key === "ArrowDown") setActive((active + 1) % entries.length);
    else if (event.key === "ArrowUp") setActive((active <= 0 ? entries.length : active) - 1);
    else if (event.key === "Escape") close();
    else if (chosen && (event.key === "Enter" || event.key === "Tab") && !event.shiftKey) take(chosen);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const isOpen = entries.length > 0;
  return (
    <div class="folder">
      <input
        ref={field}
        id="folder"
        type="text"
        inputMode="url"
        autoCapitalize="off"
        autoComplete="off"
        spellcheck={false}
        required
        value={value}
        placeholder="/home/me/project"
        role="combobox"
        aria-autocomplete="list"
        aria-expanded={isOpen}
        aria-controls={isOpen ? LIST : undefined}
        aria-activedescendant={isOpen && active >= 0 ? suggestionId(LIST, active) : undefined}
        aria-invalid={wrong}
        aria-describedby="folder-wrong"
        onInput={({ currentTarget }) => {
          write(currentTarget.value);
          look(currentTarget.value);
        }}
        onKeyDown={keyDown}
        onBlur={close}
      />
      {isOpen && <Suggestions id={LIST} entries={entries} active={active} take={take} />}
    </div>
  );
}
