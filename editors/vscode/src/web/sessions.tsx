/** The sessions: beside the chat, or in a drawer where there is no room for both. */
import type { SessionInfo } from "@agentclientprotocol/sdk";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { labelOfUri } from "../core/uris";
import { ago, short } from "../core/words";
import { Icon, Spinner } from "../webview/icons";
import { useBrowser, usePage } from "./use";

export function Sessions({ close }: { readonly close: () => void }): JSX.Element {
  const browser = useBrowser();
  const sessions = usePage("sessions");
  const cursor = usePage("cursor");
  const listed = usePage("listed");
  const drawer = usePage("drawer");
  const mayPrompt = usePage("mayPrompt");
  const first = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (drawer) first.current?.focus();
  }, [drawer]);
  return (
    <nav class="sessions" aria-label="Sessions">
      <div class="top">
        <button ref={first} type="button" class="plain shut" aria-label="Close the list" onClick={close}>
          <Icon name="close" />
        </button>
        {mayPrompt && (
          <button
            type="button"
            class="primary new"
            onClick={() => {
              browser.rest();
            }}
          >
            New session
          </button>
        )}
      </div>
      {listed && sessions.length === 0 && <p class="quiet none">No sessions yet.</p>}
      <ul>
        {sessions.map((session) => (
          <Row key={session.sessionId} session={session} mayDelete={mayPrompt} />
        ))}
      </ul>
      {cursor !== undefined && (
        <button
          type="button"
          class="secondary more"
          onClick={() => {
            browser.more();
          }}
        >
          Show older ones
        </button>
      )}
      <div class="foot">
        <button
          type="button"
          class="link"
          onClick={() => {
            browser.logout();
          }}
        >
          Log out
        </button>
        <a class="link" href="/notices.txt" target="_blank" rel="noreferrer">
          Licences
        </a>
      </div>
    </nav>
  );
}

function Row({ session, mayDelete }: { readonly session: SessionInfo; readonly mayDelete: boolean }): JSX.Element {
  const browser = useBrowser();
  const active = usePage("active");
  const working = usePage("working");
  const isOpen = active?.id === session.sessionId;
  const own = isOpen ? active.title : "";
  const title = short(own === "" ? (session.title ?? "") : own, 120) || "Untitled";
  const works = working.has(session.sessionId);
  return (
    <li class={isOpen ? "current" : ""}>
      <button
        type="button"
        class="open"
        aria-current={isOpen ? "page" : undefined}
        title={`${title}\n${session.cwd}`}
        onClick={() => {
          browser.open(session);
        }}
      >
        <span class="title">{title}</span>
        <span class="quiet">
          {works && (
            <>
              <Spinner />
              <span class="unseen">works, </span>
            </>
          )}
          {[labelOfUri(session.cwd), ago(session.updatedAt ?? undefined)].filter((text) => text !== "").join(" · ")}
        </span>
      </button>
      {mayDelete && (
        <button
          type="button"
          class="plain delete"
          aria-label={`Delete: ${title}`}
          title="Delete"
          onClick={() => {
            browser.remove(session);
          }}
        >
          <Icon name="delete" />
        </button>
      )}
    </li>
  );
}
