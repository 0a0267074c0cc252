/** What every part of the page can reach. */
import { createContext } from "preact";
import { useContext, useLayoutEffect, useState } from "preact/hooks";
import type { Browser } from "./browser";
import type { PageFacts } from "./state";

export const BrowserContext = createContext<Browser | null>(null);

export function useBrowser(): Browser {
  const browser = useContext(BrowserContext);
  if (!browser) throw new Error("A part of the page is outside of it");
  return browser;
}

/** Draws again when this one changes. */
export function usePage<Name extends keyof PageFacts>(name: Name): PageFacts[Name] {
  const { state } = useBrowser();
  const [value, setValue] = useState(() => state.facts[name]);
  useLayoutEffect(() => {
    const look = (): void => {
      setValue(() => state.facts[name]);
    };
    look();
    return state.changed.on(look);
  }, [state, name]);
  return value;
}
