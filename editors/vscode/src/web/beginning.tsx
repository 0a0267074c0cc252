/** What stands where there is no conversation: a new session, and hints. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { labelOfUri } from "../core/uris";
import { messageOf } from "../core/words";
import { useFact } from "../webview/context";
import { Icon, Spinner } from "../webview/icons";
import { FolderField } from "./folderField";
import { folders } from "./kept";
import { foldersLike } from "./names";
import { useBrowser, usePage } from "./use";

/** So many folders of earlier sessions are offered, besides those that the token is for. */
const RECENT = 8;

export function Beginning(): JSX.Element {
  const browser = useBrowser();
  const sessions = usePage("sessions");
  const mayPrompt = usePage("mayPrompt");
  const [allowed, setAllowed] = useState<readonly string[]>([]);
  const recent = [...new Set([...folders(), ...sessions.map(({ cwd }) => cwd)])].slice(0, RECENT);
  const known = [...new Set([...recent, ...allowed])];
  const [folder, setFolder] = useState<string | undefined>(undefined);
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const shown = folder ?? recent[0] ?? "";
  useEffect(() => {
    // On a phone it would bring up the keyboard.
    if (matchMedia("(hover: hover)").matches) input.current?.focus();
    void foldersLike().then(setAllowed);
  }, []);
  const begin = (where: string): void => {
    if (!where.startsWith("/")) {
      setWrong("The folder is a path on the server that begins with “/”.");
      input.current?.focus();
      return;
    }
    setBusy(true);
    setWrong("");
    browser.begin(where).then(
      () => undefined,
      (error: unknown) => {
        setBusy(false);
        setWrong(messageOf(error));
        input.current?.focus();
      },
    );
  };
  if (!mayPrompt) {
    return (
      <div class="empty">
        <p class="first">Choose a session to look on.</p>
      </div>
    );
  }
  return (
    <form
      class="beginning"
      aria-labelledby="beginning"
      onSubmit={(event) => {
        event.preventDefault();
        begin(shown.trim().replace(/(?<=.)\/+$/u, ""));
      }}
    >
      <h2 id="beginning">New session</h2>
      <label for="folder">Folder on the server</label>
      <div class="row">
        <FolderField
          value={shown}
          wrong={wrong !== ""}
          field={input}
          write={(text) => {
            setFolder(text);
            setWrong("");
          }}
        />
        <button type="submit" class="primary" disabled={busy}>
          {busy ? <Spinner /> : "Begin"}
        </button>
      </div>
      <p id="folder-wrong" class="wrong" role="alert">
        {wrong}
      </p>
      {known.length > 0 && (
        <>
          <h3 class="quiet">Begin in</h3>
          <ul class="earlier">
            {known.map((one) => (
              <li key={one}>
                <button
                  type="button"
                  class="secondary"
                  disabled={busy}
                  title={one}
                  onClick={() => {
                    begin(one);
                  }}
                >
                  <Icon name="file" />
                  <bdi>{one}</bdi>
                </button>
              </li>
            ))}
          </ul>
        </>
      )}
    </form>
  );
}

export function Hints(): JSX.Element {
  const active = usePage("active");
  const agent = useFact("agent");
  const images = useFact("images");
  const commands = useFact("commands");
  const may = useFact("may");
  if (!may.prompt) {
    return (
      <div class="empty">
        <p class="first">Nothing was said yet.</p>
      </div>
    );
  }
  return (
    <div class="empty">
      <Icon name="spark" class="large" />
      <p class="first">
        Say what {agent.name} shall do in <bdi>{labelOfUri(active?.cwd ?? "")}</bdi>.
      </p>
      <ul>
        <li>
          <kbd>@</kbd> adds a file
        </li>
        {commands.length > 0 && (
          <li>
            <kbd>/</kbd> shows the agent’s commands
          </li>
        )}
        {images && <li>Pictures can be pasted or attached</li>}
        <li class="of-keyboards">
          <kbd>Enter</kbd> sends, <kbd>Shift</kbd>+<kbd>Enter</kbd> begins a new line, <kbd>Ctrl</kbd>+<kbd>.</kbd> stops
        </li>
      </ul>
    </div>
  );
}
