/** The view's own pictures, 16 by 16, in the colour of the text they stand with. They say nothing: the words beside do. */
import type { JSX } from "preact";

const PATHS = {
  // kinds of tools
  read: "M3 2.5h6.5L13 6v7.5H3zM9.5 2.5V6H13M5.5 8.5h5M5.5 11h5",
  edit: "M2.5 13.5l.8-3.2 7.8-7.8 2.4 2.4-7.8 7.8zM9.6 4l2.4 2.4",
  delete: "M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.6 9h5.8l.6-9M6.8 7v4M9.2 7v4",
  move: "M2.5 8h10.5M9.5 4.5L13 8l-3.5 3.5",
  search: "M11 7a4 4 0 1 1-8 0 4 4 0 0 1 8 0zM10 10l3.5 3.5",
  execute: "M2.5 3h11v10h-11zM5 6l2 2-2 2M8.5 10h2.5",
  think: "M8 2.3a4 4 0 0 0-2.3 7.3c.5.4.8 1 .8 1.6h3c0-.6.3-1.2.8-1.6A4 4 0 0 0 8 2.3zM6.7 13.7h2.6",
  fetch: "M13.5 8a5.5 5.5 0 1 1-11 0 5.5 5.5 0 0 1 11 0zM2.5 8h11M8 2.5c2 1.7 2.6 3.5 2.6 5.5S10 11.8 8 13.5C6 11.8 5.4 10 5.4 8S6 4.2 8 2.5z",
  switch_mode: "M2.5 5.5h10M9.5 2.5l3 3-3 3M13.5 10.5h-10M6.5 7.5l-3 3 3 3",
  other: "M9.8 2.6a3.6 3.6 0 0 0-3.6 4.9L2.5 11.2l2.3 2.3 3.7-3.7a3.6 3.6 0 0 0 4.7-4.7L11 7.3 8.9 6.9 8.6 4.9l2.2-2.1a3.6 3.6 0 0 0-1-.2z",
  // states
  pending: "M13 8A5 5 0 1 1 3 8a5 5 0 0 1 10 0z",
  completed: "M3 8.5l3.2 3.2L13 5",
  check: "M3 8.5l3.2 3.2L13 5",
  failed: "M4 4l8 8M12 4l-8 8",
  cancelled: "M13.5 8a5.5 5.5 0 1 1-11 0 5.5 5.5 0 0 1 11 0zM4.2 4.2l7.6 7.6",
  // signs and buttons
  chevron: "M6 3.5L10.5 8 6 12.5",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  close: "M4 4l8 8M12 4l-8 8",
  send: "M2.5 2.8L14 8 2.5 13.2 4.5 8zM4.5 8h4.5",
  queue: "M2.5 4h11M2.5 8h6.5M2.5 12h6.5M12 8v5M9.5 10.5h5",
  stop: "M4 4h8v8H4z",
  down: "M8 2.5v10.5M3.5 8.5L8 13l4.5-4.5",
  attach: "M8 2.5v11M2.5 8h11",
  file: "M3.5 2.5h5.5l3.5 3.5v7.5h-9zM9 2.5V6h3.5",
  selection: "M3 4h10M3 8h6.5M3 12h8.5M12.5 6.5v3",
  problems: "M8 2.5l6 11H2zM8 6.5v3.5M8 11.8v.2",
  text: "M2.5 4h11M2.5 8h11M2.5 12h7",
  insert: "M8 2.5v7.5M4.5 6.5L8 10l3.5-3.5M3 13.5h10",
  apply: "M3 13l6.5-6.5M11 2.5v3M9.5 4h3M13 8v2M12 9h2",
  image: "M2.5 3.5h11v9h-11zM2.5 11l3.5-3.5 3 3 2-2 2.5 2.5M10.5 6.3v.1",
  resource: "M6.5 9.5l3-3M7.5 5l1.7-1.7a2.5 2.5 0 0 1 3.5 3.5L11 8.5M8.5 11l-1.7 1.7a2.5 2.5 0 0 1-3.5-3.5L5 7.5",
  info: "M13.5 8a5.5 5.5 0 1 1-11 0 5.5 5.5 0 0 1 11 0zM8 7.3v3.7M8 5v.2",
  warning: "M8 2.5l6 11H2zM8 6.5v3.5M8 11.8v.2",
  error: "M13.5 8a5.5 5.5 0 1 1-11 0 5.5 5.5 0 0 1 11 0zM6 6l4 4M10 6l-4 4",
  diff: "M8 3v6M5 6h6M5 12.5h6",
  shield: "M8 2l5 1.8v4c0 3-2.2 5-5 6.2-2.8-1.2-5-3.2-5-6.2v-4zM5.8 7.8l1.7 1.7 2.9-3.2",
  spark: "M8 2l1.5 4.5L14 8l-4.5 1.5L8 14l-1.5-4.5L2 8l4.5-1.5z",
  restore: "M3 3v4h4M3.3 7A5.2 5.2 0 1 1 2.9 9.2",
  redo: "M13 3v4H9M12.7 7A5.2 5.2 0 1 0 13.1 9.2",
  fork: "M4.5 5.5v5M4.5 8h4.5a2 2 0 0 0 2-2v-.5M6 4a1.5 1.5 0 1 1-3 0 1.5 1.5 0 0 1 3 0zM6 12a1.5 1.5 0 1 1-3 0 1.5 1.5 0 0 1 3 0zM12.5 4a1.5 1.5 0 1 1-3 0 1.5 1.5 0 0 1 3 0z",
  plan: "M2.5 4l1.2 1.2L6 3M8 4.2h5.5M2.5 8.5l1.2 1.2L6 7.5M8 8.7h5.5M3 13h2M8 13h5.5",
  context: "M10.7 8a2.7 2.7 0 1 1-5.4 0 2.7 2.7 0 0 1 5.4 0zM10.7 5.5V9c0 2.2 2.8 2 2.8-1A5.5 5.5 0 1 0 11 12.6",
} as const;

export type IconName = keyof typeof PATHS;

const FILLED: readonly IconName[] = ["stop"];

export function Icon({ name, class: extra = "" }: { readonly name: IconName; readonly class?: string }): JSX.Element {
  return (
    <svg class={`icon ${extra}`} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path
        d={PATHS[name]}
        fill={FILLED.includes(name) ? "currentColor" : "none"}
        stroke="currentColor"
        stroke-width="1.2"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}

interface IconButtonProps {
  readonly icon: IconName;
  /** Its name for who does not see the icon. */
  readonly label: string;
  readonly title?: string;
  readonly act: () => void;
}

export function IconButton({ icon, label, title, act }: IconButtonProps): JSX.Element {
  return (
    <button type="button" class="plain" title={title} aria-label={label} onClick={act}>
      <Icon name={icon} />
    </button>
  );
}

/** Turns while something runs; stands still for who wants no motion. */
export function Spinner(): JSX.Element {
  return (
    <svg class="icon spinner" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d="M8 2.5a5.5 5.5 0 1 1-5.5 5.5" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" />
    </svg>
  );
}
