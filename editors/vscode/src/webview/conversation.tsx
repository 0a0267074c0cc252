/** The conversation, in runs of items that are compared as one. */
import { memo } from "preact/compat";
import { useRef } from "preact/hooks";
import type { ComponentChildren, JSX } from "preact";
import { useChunks, useFact, useView } from "./context";
import { Icon } from "./icons";
import { ItemView } from "./items";
import { useScrolling } from "./scrolling";

interface ChunkProps {
  readonly ids: readonly string[];
  /** The item that is being written. */
  readonly liveId: string | undefined;
}

const Chunk = memo(({ ids, liveId }: ChunkProps) => (
  <>
    {ids.map((id) => (
      <ItemView key={id} id={id} live={id === liveId} />
    ))}
  </>
));

/** `children` stand where the conversation is empty or still to come. */
export function Conversation({ children }: { readonly children?: ComponentChildren }): JSX.Element {
  const { store } = useView();
  const chunks = useChunks();
  const running = useFact("running");
  const scroller = useRef<HTMLDivElement>(null);
  const { atEnd, toEnd } = useScrolling(scroller);
  const last = chunks.length - 1;
  return (
    <main class="conversation">
      {/* A log reads out each delta by itself; finished answers are told by `Announcer` instead. */}
      <div class={`scroller ${atEnd ? "at-end" : ""}`} ref={scroller} role="log" aria-live="off" aria-label="Conversation" tabIndex={0}>
        <div class="items">
          {chunks.map((ids, index) => (
            <Chunk key={`${store.generation}:${index}`} ids={ids} liveId={running && index === last ? ids.at(-1) : undefined} />
          ))}
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
