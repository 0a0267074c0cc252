/** The lines of a diff, in colours; their signs say the same. */
import { memo } from "preact/compat";
import type { JSX } from "preact";

const KINDS: Readonly<Record<string, string>> = { "+": "added", "-": "removed", "@": "gap" };

export const DiffLines = memo(({ lines }: { readonly lines: readonly string[] }): JSX.Element => (
  <pre class="difflines" tabIndex={-1}>
    {lines.map((line, index) => (
      <span key={index} class={`line ${KINDS[line.charAt(0)] ?? ""}`}>
        {line === "@" ? "⋯" : line}
      </span>
    ))}
  </pre>
));
