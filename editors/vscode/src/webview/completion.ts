/** The completion list at the cursor: `/` from the agent's commands, `@` from the extension. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { Completion } from "../core/messages";
import { useFact, useView } from "./context";
import { commandsFor, type Trigger, triggerAt } from "./trigger";

/** Milliseconds of typing before the extension is asked. */
const DEBOUNCE_MS = 120;

export interface Completing {
  readonly trigger: Trigger | null;
  readonly entries: readonly Completion[];
  readonly active: number;
  /** Examines the text before the cursor again. */
  readonly look: (text: string, cursor: number) => void;
  readonly move: (by: number) => void;
  /** Closes the list; it stays closed for the current word. */
  readonly close: () => void;
  /** Closes the list until something is typed or clicked. */
  readonly leave: () => void;
}

export function useCompletion(): Completing {
  const { post, bus } = useView();
  const commands = useFact("commands");
  const [trigger, setTrigger] = useState<Trigger | null>(null);
  const [found, setFound] = useState<readonly Completion[]>([]);
  const [active, setActive] = useState(0);
  const request = useRef(0);
  const timer = useRef<ReturnType<typeof setTimeout>>();
  /** Position of the sign whose list was closed with Escape. */
  const closed = useRef<number | null>(null);

  useEffect(
    () =>
      bus.on("completions", (answer) => {
        // An answer to earlier input is no longer of use.
        if (answer.request !== request.current) return;
        setFound(answer.entries);
        setActive(0);
      }),
    [bus],
  );
  useEffect(
    () => () => {
      clearTimeout(timer.current);
    },
    [],
  );

  const end = (): void => {
    clearTimeout(timer.current);
    request.current += 1;
    setTrigger(null);
    setFound([]);
  };

  const look = (text: string, cursor: number): void => {
    const next = triggerAt(text, cursor);
    if (!next) {
      closed.current = null;
      end();
      return;
    }
    if (closed.current === next.start) return;
    closed.current = null;
    const isNew = trigger?.sign !== next.sign || trigger.start !== next.start;
    if (!isNew && trigger.query === next.query) return;
    setTrigger(next);
    setActive(0);
    if (isNew) setFound([]);
    clearTimeout(timer.current);
    request.current += 1;
    if (next.sign === "/") return;
    const asked = request.current;
    const ask = (): void => {
      post({ type: "complete", request: asked, query: next.query });
    };
    timer.current = setTimeout(ask, isNew ? 0 : DEBOUNCE_MS);
  };

  const entries = trigger === null ? [] : trigger.sign === "/" ? commandsFor(trigger.query, commands) : found;
  return {
    trigger,
    entries,
    active: Math.min(active, Math.max(0, entries.length - 1)),
    look,
    move: (by) => {
      setActive((entries.length + Math.min(active, entries.length - 1) + by) % Math.max(1, entries.length));
    },
    close: () => {
      closed.current = trigger?.start ?? null;
      end();
    },
    leave: end,
  };
}
