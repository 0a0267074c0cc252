/** The list above the box where the user writes. The cursor stays in the box: entries are chosen from there. */
import { useEffect, useRef } from "preact/hooks";
import type { JSX } from "preact";
import type { Completion } from "../core/messages";

/** The id of the entry at `index`, for `aria-activedescendant`. */
export function suggestionId(list: string, index: number): string {
  return `${list}-${index}`;
}

interface SuggestionsProps {
  readonly id: string;
  readonly entries: readonly Completion[];
  readonly active: number;
  readonly take: (entry: Completion) => void;
}

export function Suggestions({ id, entries, active, take }: SuggestionsProps): JSX.Element {
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [active, entries]);
  return (
    <ul class="suggestions" id={id} role="listbox" aria-label="Suggestions" ref={list}>
      {entries.map((entry, index) => (
        <li
          key={`${entry.insert}:${index}`}
          id={suggestionId(id, index)}
          role="option"
          aria-selected={index === active}
          title={entry.detail}
          onMouseDown={(event) => {
            // The box keeps the cursor.
            event.preventDefault();
            take(entry);
          }}
        >
          <span class="label">{entry.label}</span>
          <span class="detail">{entry.detail}</span>
        </li>
      ))}
    </ul>
  );
}
