/** Loads the colours for code when they are first wanted. */
import { useEffect, useState } from "preact/hooks";

/** Escaped HTML with `span`s, or null for a language it does not know. */
export type Highlight = (text: string, language: string) => string | null;

declare global {
  interface Window {
    acpHighlight?: Highlight;
  }
}

/** That of the bundle that runs, known only while it is loaded: other scripts of the page are VS Code's own. */
const NONCE = document.currentScript?.nonce ?? "";

let loading: Promise<void> | undefined;

/** The page names the bundle; its nonce lets it run. */
function load(): Promise<void> {
  const src = document.getElementById("root")?.dataset["highlight"];
  loading ??= new Promise((resolve) => {
    if (src === undefined) return;
    const script = document.createElement("script");
    script.nonce = NONCE;
    script.src = src;
    script.onload = () => {
      resolve();
    };
    document.head.append(script);
  });
  return loading;
}

/** Undefined until it is there; then what needs it is drawn again. */
export function useHighlighter(wanted: boolean): Highlight | undefined {
  const [, redraw] = useState(0);
  useEffect(() => {
    if (!wanted || window.acpHighlight) return undefined;
    let gone = false;
    void load().then(() => {
      if (!gone) redraw((count) => count + 1);
    });
    return () => {
      gone = true;
    };
  }, [wanted]);
  return window.acpHighlight;
}
