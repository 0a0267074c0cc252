/**
 * A permission the agent asks for: in the card of its tool call, and above the box where the user writes while that
 * card is not in view. The options are the agent's, in its order and words. Nothing here takes the cursor away.
 */
import { useLayoutEffect, useState } from "preact/hooks";
import type { JSX } from "preact";
import type { Permission } from "../core/messages";
import { useFact, useView } from "./context";
import { Icon } from "./icons";
import { reveal } from "./reveal";

export function PermissionButtons({ permission }: { readonly permission: Permission }): JSX.Element {
  const { post, bus } = useView();
  const [answered, setAnswered] = useState(false);
  const { id, options, title, toolCallId, hasDiff } = permission;
  return (
    <div class="permission" role="group" aria-label={`Permission: ${title}`} data-permission={id}>
      {options.map(({ optionId, name, kind }) => (
        <button
          key={optionId}
          type="button"
          class={`option ${kind} ${kind === options[0]?.kind && optionId === options[0].optionId ? "first" : ""}`}
          disabled={answered}
          onClick={() => {
            setAnswered(true);
            post({ type: "permission", id, optionId });
            bus.emit("focus", undefined);
          }}
        >
          {name}
        </button>
      ))}
      {hasDiff && (
        <button
          type="button"
          class="link"
          onClick={() => {
            post({ type: "openDiff", toolCallId, index: 0 });
          }}
        >
          Show the diff
        </button>
      )}
    </div>
  );
}

/** The first permission that waits, unless its buttons are in view already. */
export function PermissionBar(): JSX.Element | null {
  const view = useView();
  const permissions = useFact("permissions");
  const [permission] = permissions;
  const inView = useInView(permission);
  if (!permission || inView) return null;
  const others = permissions.length - 1;
  return (
    <section class="permission-bar" aria-label="Permission requested">
      <div class="asked">
        <Icon name="shield" />
        <button
          type="button"
          class="link title"
          title="Show the tool call"
          onClick={() => {
            reveal(permission.toolCallId, view);
          }}
        >
          {permission.title}
        </button>
        {others > 0 && <span class="quiet">and {others} more</span>}
      </div>
      <PermissionButtons key={permission.id} permission={permission} />
    </section>
  );
}

/** Whether the permission's buttons within the conversation can be seen. */
function useInView(permission: Permission | undefined): boolean {
  const [inView, setInView] = useState(false);
  const { id, toolCallId } = permission ?? {};
  useLayoutEffect(() => {
    const root = document.querySelector(".scroller");
    if (id === undefined || !root || !("IntersectionObserver" in window)) return undefined;
    // A card that is there is taken to be in view until it is known, so that the bar does not flash.
    setInView(root.querySelector(`[data-tool="${CSS.escape(toolCallId ?? "")}"]`) !== null);
    const seen = new IntersectionObserver(
      (entries) => {
        setInView(entries.at(-1)?.isIntersecting ?? false);
      },
      { root, threshold: 0.9 },
    );
    // The card may come, or be unfolded, after the permission.
    const find = (): void => {
      const buttons = root.querySelector(`[data-permission="${CSS.escape(id)}"]`);
      if (buttons) {
        seen.observe(buttons);
        changes.disconnect();
      }
    };
    const changes = new MutationObserver(find);
    changes.observe(root, { childList: true, subtree: true });
    find();
    return () => {
      seen.disconnect();
      changes.disconnect();
    };
  }, [id, toolCallId]);
  return inView;
}
