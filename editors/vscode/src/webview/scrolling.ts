/**
 * The conversation stays at its end only while the person is there.
 *
 * Where the person reads is kept as an item and the distance of its top: that holds when the view comes back with
 * another width.
 */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useChunks, useFact, useView } from "./context";
import type { Place } from "./memory";

/** Within this many pixels the person is at the end. */
const NEAR = 24;

export interface Scrolling {
  readonly atEnd: boolean;
  readonly toEnd: () => void;
}

export function useScrolling(scroller: { readonly current: HTMLElement | null }): Scrolling {
  const { store, memory, bus } = useView();
  const session = useFact("session")?.id;
  const chunks = useChunks();
  const [atEnd, setAtEnd] = useState(true);
  const sticks = useRef(true);
  const top = useRef(0);
  const restored = useRef(-1);

  const stick = (on: boolean): void => {
    sticks.current = on;
    setAtEnd(on);
  };
  const toEnd = (): void => {
    stick(true);
    if (scroller.current) scroller.current.scrollTop = scroller.current.scrollHeight;
    memory.set({ place: undefined });
  };

  // The place of before, once for each conversation.
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element || chunks.length === 0 || restored.current === store.generation) return;
    restored.current = store.generation;
    const { place } = memory.get();
    const item = place?.session === session && place ? itemElement(element, place.item) : null;
    if (!item || !place) {
      toEnd();
      return;
    }
    stick(false);
    item.scrollIntoView({ block: "start" });
    element.scrollTop -= place.offset;
    top.current = element.scrollTop;
  }, [chunks]);

  useEffect(() => {
    const element = scroller.current;
    if (!element) return undefined;
    const scrolled = (): void => {
      const distance = element.scrollHeight - element.scrollTop - element.clientHeight;
      const up = element.scrollTop < top.current - 1;
      top.current = element.scrollTop;
      // What grows below also takes one away from the end; only going up is the person's wish.
      if (distance <= NEAR) stick(true);
      else if (up || !sticks.current) stick(false);
      memory.set({ place: sticks.current ? undefined : placeOf(element, store.facts.session?.id) });
    };
    const grown = new ResizeObserver(() => {
      if (sticks.current) element.scrollTop = element.scrollHeight;
    });
    element.addEventListener("scroll", scrolled, { passive: true });
    grown.observe(element);
    if (element.firstElementChild) grown.observe(element.firstElementChild);
    return () => {
      element.removeEventListener("scroll", scrolled);
      grown.disconnect();
    };
  }, []);

  useEffect(() => {
    const ends = [
      bus.on("sent", toEnd),
      bus.on("reveal", () => {
        stick(false);
      }),
    ];
    return () => {
      for (const end of ends) end();
    };
  }, []);

  return { atEnd, toEnd };
}

function itemElement(scroller: Element, id: string): Element | null {
  return scroller.querySelector(`[data-item="${CSS.escape(id)}"]`);
}

function placeOf(scroller: Element, session: string | undefined): Place | undefined {
  const edge = scroller.getBoundingClientRect().top;
  const items = [...scroller.querySelectorAll<HTMLElement>("[data-item]")];
  // They stand in order, so half of what is left can be ruled out at each step.
  let low = 0;
  let high = items.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((items[middle]?.getBoundingClientRect().bottom ?? 0) > edge) high = middle;
    else low = middle + 1;
  }
  const first = items[low];
  const item = first?.dataset["item"];
  if (!first || item === undefined || session === undefined) return undefined;
  return { session, item, offset: Math.round(first.getBoundingClientRect().top - edge) };
}
