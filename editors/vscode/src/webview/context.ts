/** What every part of the view can reach, and the hooks that redraw a part when its topic changes. */
import { createContext } from "preact";
import { useCallback, useContext, useEffect, useLayoutEffect, useState } from "preact/hooks";
import type { ChatFacts, FromView, Item, ToolCard } from "../core/messages";
import type { Memory } from "./memory";
import type { Bus } from "./signals";
import type { Store, Topic } from "./store";

export interface View {
  readonly store: Store;
  readonly memory: Memory;
  readonly post: (message: FromView) => void;
  readonly bus: Bus;
  /** Whether files, diffs and terminals can be opened beside it: it stands in VS Code, not in a browser. */
  readonly inEditor: boolean;
}

export const ViewContext = createContext<View | null>(null);

export function useView(): View {
  const view = useContext(ViewContext);
  if (!view) throw new Error("A part of the chat is outside its view");
  return view;
}

function useTopic(topic: Topic): void {
  const { store } = useView();
  const [, redraw] = useState(0);
  useLayoutEffect(
    () =>
      store.subscribe(topic, () => {
        redraw((count) => count + 1);
      }),
    [store, topic],
  );
}

export function useFact<Name extends keyof ChatFacts>(name: Name): ChatFacts[Name] {
  useTopic(`fact:${name}`);
  return useView().store.facts[name];
}

export function useChunks(): readonly (readonly string[])[] {
  useTopic("items");
  return useView().store.chunks;
}

export function useItem(id: string): Item | undefined {
  useTopic(`item:${id}`);
  return useView().store.item(id);
}

export function useTool(id: string): ToolCard | undefined {
  useTopic(`tool:${id}`);
  return useView().store.tool(id);
}

/** The cards of several calls, drawn anew when one of them changes. */
export function useTools(ids: readonly string[]): readonly ToolCard[] {
  const { store } = useView();
  const [, redraw] = useState(0);
  useLayoutEffect(() => {
    const ends = ids.map((id) =>
      store.subscribe(`tool:${id}`, () => {
        redraw((count) => count + 1);
      }),
    );
    return () => {
      for (const end of ends) end();
    };
  }, [store, ids.join(" ")]);
  return ids.flatMap((id) => store.tool(id) ?? []);
}

/** Whether what `key` names is open: by hand, or else `byDefault`. Remembered with the view. */
export function useOpen(key: string, byDefault: boolean): readonly [boolean, (open: boolean) => void] {
  const { memory, bus } = useView();
  const [, redraw] = useState(0);
  useEffect(
    () =>
      bus.on("unfolded", (keys) => {
        if (keys.includes(key)) redraw((count) => count + 1);
      }),
    [bus, key],
  );
  const set = useCallback(
    (open: boolean) => {
      memory.setOpen(key, open);
      redraw((count) => count + 1);
    },
    [memory, key],
  );
  return [memory.get().open[key] ?? byDefault, set];
}
