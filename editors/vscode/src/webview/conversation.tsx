/** The conversation, in runs of items that are compared as one. */
import { memo } from "preact/compat";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren, JSX } from "preact";
import { useChunks, useFact, useView } from "./context";
import { Group, inGroups } from "./group";
import { Icon } from "./icons";
import { ItemView } from "./items";
import { useScrolling } from "./scrolling";

interface ChunkProps {
  readonly ids: readonly string[];
  /** The item that is being written. */
  readonly liveId: string | undefined;
}

const Chunk = memo(({ ids, liveId }: ChunkProps) => {
  const { store } = useView();
  return (
    <>
      {inGroups(ids, store).map(([id = "", ...more]) =>
        more.length > 0 ? <Group key={id} ids={[id, ...more]} /> : <ItemView key={id} id={id} live={id === liveId} />,
      )}
    </>
  );
});

/** So many runs are drawn at once; those before them follow, a frame each. */
const AT_ONCE = 3;

/** The first run that is drawn: a long conversation is there with its end, and with what the user read. */
function useFirstChunk(chunks: readonly (readonly string[])[]): number {
  const { store, memory, bus } = useView();
  const drawn = useRef({ generation: -1, first: 0 });
  const [, redraw] = useState(0);
  if (drawn.current.generation !== store.generation) {
    const { place } = memory.get();
    const read = place === undefined ? -1 : chunks.findIndex((ids) => ids.includes(place.item));
    const end = Math.max(0, chunks.length - AT_ONCE);
    drawn.current = { generation: store.generation, first: read < 0 ? end : Math.max(0, Math.min(end, read - 1)) };
  }
  const { first } = drawn.current;
  useEffect(() => {
    if (first === 0) return undefined;
    const request = requestAnimationFrame(() => {
      drawn.current.first = first - 1;
      redraw((count) => count + 1);
    });
    return () => {
      cancelAnimationFrame(request);
    };
  }, [first, store.generation]);
  useEffect(
    () =>
      bus.on("reveal", () => {
        drawn.current.first = 0;
        redraw((count) => count + 1);
      }),
    [bus],
  );
  return first;
}

/** `children` stand where the conversation is empty or still to come. */
export function Conversation({ children }: { readonly children?: ComponentChildren }): JSX.Element {
  const { store } = useView();
  const chunks = useChunks();
  const running = useFact("running");
  const first = useFirstChunk(chunks);
  const scroller = useRef<HTMLDivElement>(null);
  const { atEnd, toEnd } = useScrolling(scroller);
  const last = chunks.length - 1;
  return (
    <main class="conversation">
      {/* A log reads out each delta by itself; finished answers are told by `Announcer` instead. */}
      <div class={`scroller ${atEnd ? "at-end" : ""}`} ref={scroller} role="log" aria-live="off" aria-label="Conversation" tabIndex={0}>
        <div class="items">
          {chunks.map((ids, index) =>
            index < first ? null : (
              <Chunk key={`${store.generation}:${index}`} ids={ids} liveId={running && index === last ? ids.at(-1) : undefined} />
            ),
          )}
          {children}
        </div>
      </div>
      {!atEnd && chunks.length > 0 && (
        <button type="button" class="to-end" onClick={toEnd}>
          <Icon name="down" />
          <span>Jump to the end</span>
        </button>
      )}
    </main>
  );
}
