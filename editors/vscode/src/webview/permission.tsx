/**
 * A permission the agent asks for, above the box where the user writes: what would be done stands open, whole; then why
 * it is asked; then the answers, which are always in view. The options are the agent's, in its order and words.
 *
 * An answer that allows is live once the end of what is asked about has been in view. Until then it turns the page.
 * Nothing here takes the cursor away.
 */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { JSX, RefObject } from "preact";
import type { About, Permission } from "../core/messages";
import { useFact, useTool, useView } from "./context";
import { DiffLines } from "./diff";
import { Fold } from "./folds";
import { Icon } from "./icons";
import { reveal } from "./reveal";

/** The first permission that waits. */
export function Question(): JSX.Element | null {
  const permissions = useFact("permissions");
  const waiting = useFact("waiting");
  const [permission] = permissions;
  return permission ? <Asked key={permission.id} permission={permission} others={waiting - 1} /> : null;
}

interface AskedProps {
  readonly permission: Permission;
  /** How many more wait. */
  readonly others: number;
}

function Asked({ permission, others }: AskedProps): JSX.Element {
  const view = useView();
  const subject = useRef<HTMLDivElement>(null);
  const end = useRef<HTMLDivElement>(null);
  const live = useSeen(permission, end);
  const may = useFact("may");
  const { id, title, toolCallId, about, hasDiff } = permission;
  const kind = useTool(toolCallId)?.kind;
  return (
    <section class="question" aria-label="Permission requested" data-permission={id}>
      <div class="asked">
        <Icon name="shield" />
        <button
          type="button"
          class="link title"
          title="Show the tool call"
          onClick={() => {
            reveal(toolCallId, view);
          }}
        >
          {saysTitle(permission) ? (kind === "execute" ? "Run this command?" : "Allow this?") : title}
        </button>
        {others > 0 && <span class="quiet">and {others} more</span>}
        {hasDiff && view.inEditor && (
          <button
            type="button"
            class="link"
            onClick={() => {
              view.post({ type: "openDiff", toolCallId, index: 0 });
            }}
          >
            Show the diff
          </button>
        )}
      </div>
      <div class={`subject ${isLong(about) ? "long" : ""}`} ref={subject} tabIndex={0} role="region" aria-label={`What is asked: ${title}`}>
        {about.text !== "" && <pre class="whole">{about.text}</pre>}
        {about.diffs.map(({ label, path, lines }, index) => (
          <div key={index}>
            <div class="path" title={path}>
              {label}
            </div>
            <DiffLines lines={lines} />
          </div>
        ))}
        {!about.whole && <p>{hasDiff && view.inEditor ? "The rest is too long for here: read it in the diff editor." : "The rest is too long to be shown."}</p>}
        <div class="end" ref={end} />
      </div>
      {about.why.length > 0 && (
        <div class="why" id={`why-${id}`}>
          {about.why.map((line, index) => (
            <p key={index}>{line}</p>
          ))}
          {about.more.length > 0 && (
            <Fold name="Why?" foldKey={`why:${id}`} byDefault={false}>
              {() => (
                <ul>
                  {about.more.map((line, index) => (
                    <li key={index}>{line}</li>
                  ))}
                </ul>
              )}
            </Fold>
          )}
        </div>
      )}
      {may.answer ? <Answers permission={permission} live={live} subject={subject} /> : <p class="quiet others">Waiting for somebody who may answer.</p>}
    </section>
  );
}

/** Whether what is asked about has the call's title in it: then it is not said once more. */
export function saysTitle({ title, about }: Permission): boolean {
  const inOne = (text: string): string => text.replace(/\s+/gu, " ").trim();
  return inOne(about.text).includes(inOne(title));
}

/** Whether it needs more than a few lines, of which some are always in view. */
function isLong({ text, diffs }: About): boolean {
  return diffs.length > 0 || text.length > 150 || text.split("\n").length > 3;
}

interface AnswersProps {
  readonly permission: Permission;
  /** Whether what allows may be chosen. */
  readonly live: boolean;
  readonly subject: RefObject<HTMLElement>;
}

function Answers({ permission, live, subject }: AnswersProps): JSX.Element {
  const { post, bus } = useView();
  const [answered, setAnswered] = useState(false);
  const { id, options, title, about } = permission;
  const pages = usePages(subject, live);
  const described = [...(live ? [] : [`unread-${id}`]), ...(about.why.length > 0 ? [`why-${id}`] : [])].join(" ");
  return (
    <div class="answers" role="group" aria-label={`Permission: ${title}`}>
      {inOrder(options).map(({ optionId, name, kind }, index) => {
        const waits = !live && kind.startsWith("allow");
        const { what, scope } = inTwo(name);
        return (
          <button
            key={optionId}
            type="button"
            class={`option ${kind} ${index === 0 ? "first" : ""}`}
            disabled={answered}
            aria-disabled={waits ? "true" : undefined}
            aria-label={name}
            aria-describedby={described === "" ? undefined : described}
            title={waits ? "Read to the end first" : name}
            onClick={({ detail }) => {
              // The second click of a double click is not for what the first one has brought here.
              if (detail > 1) return;
              if (waits) {
                subject.current?.scrollBy({ top: subject.current.clientHeight * PAGE });
                return;
              }
              setAnswered(true);
              post({ type: "permission", id, optionId });
              bus.emit("focus", undefined);
            }}
          >
            <span>{waits && kind === "allow_once" && pages.of > 1 ? `Next page (${pages.at} of ${pages.of})` : what}</span>
            {scope !== "" && <span class="scope">{scope}</span>}
          </button>
        );
      })}
      <Instead
        permission={permission}
        disabled={answered}
        onSent={() => {
          setAnswered(true);
          bus.emit("focus", undefined);
        }}
      />
      <div class="unread quiet">
        <span id={`unread-${id}`} role="status">
          {live ? "" : "To allow it, read to the end."}
        </span>
        {!live && about.whole && (
          <button
            type="button"
            class="link"
            onClick={() => {
              subject.current?.scrollTo({ top: subject.current.scrollHeight });
              subject.current?.focus();
            }}
          >
            Jump to the end
          </button>
        )}
      </div>
    </div>
  );
}

/** What is for once comes first: then neither an answer nor a rejection is smaller than the one for ever. */
function inOrder(options: Permission["options"]): Permission["options"] {
  return [...options].sort((left, right) => Number(left.kind.endsWith("always")) - Number(right.kind.endsWith("always")));
}

/** How much of the whole one press turns. */
const PAGE = 0.9;

/** Which page of what is asked about is in view, while it must be read first. */
function usePages(subject: RefObject<HTMLElement>, live: boolean): { readonly at: number; readonly of: number } {
  const [pages, setPages] = useState({ at: 1, of: 1 });
  useLayoutEffect(() => {
    const element = subject.current;
    if (live || !element) return undefined;
    const look = (): void => {
      const { scrollTop, scrollHeight, clientHeight } = element;
      const page = Math.max(1, clientHeight * PAGE);
      const of = Math.max(1, Math.ceil((scrollHeight - clientHeight) / page) + 1);
      setPages({ at: Math.min(of, Math.ceil(scrollTop / page) + 1), of });
    };
    look();
    element.addEventListener("scroll", look);
    return () => {
      element.removeEventListener("scroll", look);
    };
  }, [live]);
  return pages;
}

interface InsteadProps {
  readonly permission: Permission;
  readonly disabled: boolean;
  readonly onSent: () => void;
}

/** A rejection with words for the model. */
function Instead({ permission, disabled, onSent }: InsteadProps): JSX.Element | null {
  const { post } = useView();
  const [words, setWords] = useState<string | undefined>();
  const rejecting = permission.options.find(({ kind }) => kind === "reject_once");
  if (rejecting === undefined) return null;
  if (words === undefined) {
    return (
      <button
        type="button"
        class="link instead"
        disabled={disabled}
        onClick={() => {
          setWords("");
        }}
      >
        No, and say what to do instead
      </button>
    );
  }
  return (
    <form
      class="instead"
      onSubmit={(event) => {
        event.preventDefault();
        if (disabled || words.trim() === "") return;
        post({ type: "permission", id: permission.id, optionId: rejecting.optionId, reason: words.trim() });
        onSent();
      }}
    >
      <input
        type="text"
        aria-label="What to do instead"
        placeholder="What to do instead"
        value={words}
        ref={(input) => input?.focus()}
        onInput={({ currentTarget }) => {
          setWords(currentTarget.value);
        }}
      />
      <button type="submit" class="link" disabled={disabled || words.trim() === ""}>
        Reject
      </button>
    </form>
  );
}

/** The name of an option: what it does, and for what. */
export function inTwo(name: string): { readonly what: string; readonly scope: string } {
  const found = /^((?:always |never )(?:allow|reject|deny)|(?:allow|reject|deny) (?:always|never)|yes, and don.t ask again)[:,]? (.+)$/iu.exec(name);
  return { what: found?.[1] ?? name, scope: found?.[2] ?? "" };
}

/** Of the end, which is some pixels high: where those of a screen are none of the page's, its last one is never in view. */
const HALF = 0.5;

/** Whether the end of what is asked about has been in view; the extension is told. */
function useSeen({ id, seen, about }: Permission, end: RefObject<HTMLElement>): boolean {
  const { post } = useView();
  useLayoutEffect(() => {
    const element = end.current;
    if (seen || !about.whole || !element) return undefined;
    const observer = new IntersectionObserver(
      (entries) => {
        if (entries.some(({ isIntersecting, intersectionRatio }) => isIntersecting && intersectionRatio >= HALF)) {
          observer.disconnect();
          post({ type: "seen", id });
        }
      },
      { threshold: HALF },
    );
    observer.observe(element);
    return () => {
      observer.disconnect();
    };
  }, [id, seen, about.whole]);
  return seen;
}
