/** The page: the sessions, the chat, and what is asked above both. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { App } from "../webview/app";
import { useFact, type View, ViewContext } from "../webview/context";
import { IconButton } from "../webview/icons";
import { labelOfUri } from "../core/uris";
import type { Browser } from "./browser";
import { Dialog } from "./dialog";
import { Login } from "./login";
import { Beginning, Hints } from "./beginning";
import { Sessions } from "./sessions";
import { BrowserContext, useBrowser, usePage } from "./use";

export function Page({ browser, view }: { readonly browser: Browser; readonly view: View }): JSX.Element {
  return (
    <BrowserContext.Provider value={browser}>
      <ViewContext.Provider value={view}>
        <Stage view={view} />
        <Dialog />
        <Said />
      </ViewContext.Provider>
    </BrowserContext.Provider>
  );
}

function Stage({ view }: { readonly view: View }): JSX.Element {
  const stage = usePage("stage");
  const linkWords = usePage("linkWords");
  if (stage === "out") return <Login />;
  if (stage === "looking") {
    return (
      <main class="waiting">
        <h1>acp-coder</h1>
        <p role="status">{linkWords === "" ? "Connecting…" : linkWords}</p>
      </main>
    );
  }
  return <Inside view={view} />;
}

function Inside({ view }: { readonly view: View }): JSX.Element {
  const browser = useBrowser();
  const drawer = usePage("drawer");
  const active = usePage("active");
  const working = usePage("working");
  const asks = useFact("permissions").length > 0;
  const menu = useRef<HTMLButtonElement>(null);
  const wasOpen = useRef(false);
  const close = (): void => {
    browser.state.set({ drawer: false });
  };
  useEffect(() => {
    // What had the focus is hidden now.
    const at = document.activeElement;
    if (wasOpen.current && !drawer && (at === document.body || at?.closest(".sessions"))) menu.current?.focus();
    wasOpen.current = drawer;
  }, [drawer]);
  useEffect(() => {
    const title = active === null ? "" : active.title === "" ? "New session" : active.title;
    const mark = asks ? "? " : active !== null && working.has(active.id) ? "● " : "";
    document.title = title === "" ? "acp-coder" : `${mark}${title} – acp-coder`;
  }, [active, working, asks]);
  useEffect(() => {
    const key = (event: KeyboardEvent): void => {
      if (event.key === "." && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        browser.stop();
      } else if (event.key === "Escape" && browser.state.facts.drawer) {
        event.preventDefault();
        close();
      }
    };
    window.addEventListener("keydown", key);
    return () => {
      window.removeEventListener("keydown", key);
    };
  }, [browser]);
  return (
    <div class={`page ${drawer ? "drawn" : ""}`}>
      <Sessions close={close} />
      {drawer && <div class="shade" onClick={close} />}
      <div class="beside" inert={drawer}>
        <header class="bar">
          <button
            ref={menu}
            type="button"
            class="menu"
            aria-label="Sessions"
            aria-expanded={drawer}
            title="Sessions"
            onClick={() => {
              browser.state.set({ drawer: true });
            }}
          >
            <Menu />
          </button>
          <div class="names">
            <h1 title={active?.title ?? ""}>{active === null ? "acp-coder" : active.title === "" ? "New session" : active.title}</h1>
            {active !== null && (
              <p class="quiet" title={active.cwd}>
                {labelOfUri(active.cwd)}
              </p>
            )}
          </div>
          {active !== null && (
            <IconButton
              icon="close"
              label="Close the session"
              title="Close the session; it stays in the list"
              act={() => {
                browser.close();
              }}
            />
          )}
        </header>
        <Link />
        <App view={view} empty={active === null ? <Beginning /> : <Hints />} />
      </div>
    </div>
  );
}

/** That the server is not there, and that the page tries again. */
function Link(): JSX.Element {
  const browser = useBrowser();
  const words = usePage("linkWords");
  return (
    <div class="link-state" role="status">
      {words !== "" && (
        <>
          <span>{words}</span>
          <button
            type="button"
            class="link"
            onClick={() => {
              browser.reconnect();
            }}
          >
            Try now
          </button>
        </>
      )}
    </div>
  );
}

/** Milliseconds that a message which is no error stays. */
const SHOWN = 6_000;

function Said(): JSX.Element {
  const browser = useBrowser();
  const said = usePage("said");
  useEffect(() => {
    if (said === null || said.isError) return undefined;
    const timer = setTimeout(() => {
      if (browser.state.facts.said === said) browser.state.set({ said: null });
    }, SHOWN);
    return () => {
      clearTimeout(timer);
    };
  }, [said]);
  return (
    <div class={`toast ${said === null ? "" : said.isError ? "error" : "shown"}`} role={said?.isError === true ? "alert" : "status"}>
      {said !== null && (
        <>
          <span>{said.words}</span>
          <IconButton
            icon="close"
            label="Close the message"
            act={() => {
              browser.state.set({ said: null });
            }}
          />
        </>
      )}
    </div>
  );
}

function Menu(): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="20" height="20" aria-hidden="true" focusable="false">
      <path d="M2 4h12M2 8h12M2 12h12" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" />
    </svg>
  );
}
