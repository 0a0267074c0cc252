/**
 * Keeps the conversation at its end only while the user is there.
 *
 * The reading position is kept as an item and the distance of its top: that still holds when the view returns with
 * another width.
 */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useChunks, useFact, useView } from "./context";
import type { Place } from "./memory";

/** Within this many pixels the user counts as being at the end. */
const NEAR = 24;

export interface Scrolling {
  readonly atEnd: boolean;
  readonly toEnd: () => void;
}

export function useScrolling(scroller: { readonly current: HTMLElement | null }): Scrolling {
  const { store, memory, bus } = useView();
  const session = useFact("session")?.id;
  const isEmpty = useChunks().length === 0;
  const [atEnd, setAtEnd] = useState(true);
  const sticks = useRef(true);
  const top = useRef(0);
  const restored = useRef(-1);
  const restoring = useRef(false);

  const stick = (on: boolean): void => {
    sticks.current = on;
    setAtEnd(on);
  };
  const toEnd = (): void => {
    stick(true);
    if (scroller.current) scroller.current.scrollTop = scroller.current.scrollHeight;
    memory.set({ place: undefined });
  };

  // The previous position, once per conversation.
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element || isEmpty || restored.current === store.generation) return undefined;
    restored.current = store.generation;
    const { place } = memory.get();
    const item = place?.session === session && place ? itemElement(element, place.item) : null;
    if (!item || !place) {
      toEnd();
      return undefined;
    }
    stick(false);
    restoring.current = true;
    return settle(element, item, place.offset, () => {
      top.current = element.scrollTop;
      restoring.current = false;
    });
  }, [isEmpty, store.generation]);

  useEffect(() => {
    const element = scroller.current;
    if (!element) return undefined;
    const scrolled = (): void => {
      if (restoring.current) return;
      const distance = element.scrollHeight - element.scrollTop - element.clientHeight;
      const up = element.scrollTop < top.current - 1;
      top.current = element.scrollTop;
      // Growth below also moves the view away from the end; only scrolling up is the user's intention.
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

/** Maximum number of frames to wait until everything above has its height. */
const MOST_FRAMES = 30;

/**
 * Scrolls `item` to `offset` below the upper edge, again in each frame until it stays there: hidden parts get their
 * height only when they become visible. Returns the function that stops it; the user's scrolling stops it, too.
 */
function settle(scroller: HTMLElement, item: Element, offset: number, done: () => void): () => void {
  let frame = 0;
  let calm = 0;
  let request = 0;
  const end = (): void => {
    cancelAnimationFrame(request);
    scroller.removeEventListener("wheel", end);
    scroller.removeEventListener("pointerdown", end);
    scroller.removeEventListener("keydown", end);
    done();
  };
  const align = (): void => {
    const off = item.getBoundingClientRect().top - scroller.getBoundingClientRect().top - offset;
    calm = Math.abs(off) < 1 ? calm + 1 : 0;
    scroller.scrollTop += off;
    frame += 1;
    if (calm > 2 || frame > MOST_FRAMES) end();
    else request = requestAnimationFrame(align);
  };
  for (const type of ["wheel", "pointerdown", "keydown"]) scroller.addEventListener(type, end, { passive: true });
  align();
  return end;
}

function itemElement(scroller: Element, id: string): Element | null {
  return scroller.querySelector(`[data-item="${CSS.escape(id)}"]`);
}

function placeOf(scroller: Element, session: string | undefined): Place | undefined {
  const edge = scroller.getBoundingClientRect().top;
  const items = [...scroller.querySelectorAll<HTMLElement>("[data-item]")];
  // They are in order, so half of the rest can be ruled out at each step.
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
