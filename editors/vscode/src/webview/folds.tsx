/** What opens and closes what is below it. */
import type { ComponentChildren, JSX } from "preact";
import { useOpen } from "./context";
import { Icon } from "./icons";

interface FoldProps {
  readonly name: string;
  readonly foldKey: string;
  readonly byDefault: boolean;
  /** Called only when it is open. */
  readonly children: () => JSX.Element;
}

export function Fold({ name, foldKey, byDefault, children }: FoldProps): JSX.Element {
  const [open, setOpen] = useOpen(foldKey, byDefault);
  return (
    <details
      class="fold"
      open={open}
      onToggle={(event) => {
        if (event.currentTarget.open !== open) setOpen(event.currentTarget.open);
      }}
    >
      <summary>
        <Icon name="chevron" class="chevron" />
        {name}
      </summary>
      {open && children()}
    </details>
  );
}

interface FoldButtonProps {
  readonly open: boolean;
  readonly setOpen: (open: boolean) => void;
  readonly children: ComponentChildren;
}

/** A line that is a button, for what stands elsewhere than right below it. */
export function FoldButton({ open, setOpen, children }: FoldButtonProps): JSX.Element {
  return (
    <button
      type="button"
      class="fold"
      aria-expanded={open}
      onClick={() => {
        setOpen(!open);
      }}
    >
      {children}
    </button>
  );
}
