/**
 * The card of a tool call, the same element from its first message to its last, keyed by `toolCallId`.
 *
 * It is one line, with the exit code of a command and what a diff changes; the rest is folded. What one wants to see at
 * once stands open: a failure, a running command, the calls of a sub-agent that works.
 */
import { memo } from "preact/compat";
import { useEffect, useRef } from "preact/hooks";
import type { ComponentChildren, JSX } from "preact";
import type { ToolCard, ToolContent, ToolStatus } from "../core/messages";
import { DiffLines } from "./diff";
import { useFact, useOpen, useTool, useView } from "./context";
import { Fold, FoldButton } from "./folds";
import { Icon, Spinner } from "./icons";
import { Picture } from "./picture";
import { followLink, Markdown, withPlaces } from "./markdown";
import { saysTitle } from "./permission";
import { isBelow } from "./reveal";
import { plainText, unfenced } from "../core/words";
import { duration } from "./words";

const STATUS: Readonly<Record<ToolStatus, string>> = {
  pending: "waiting",
  in_progress: "running",
  completed: "done",
  failed: "failed",
  cancelled: "cancelled",
};

/** The output of a command that has run here, where there are no terminals; else it stands in one. */
function isCommand(card: ToolCard | undefined, inEditor: boolean): boolean {
  return !inEditor && card?.kind === "execute";
}

/** What stands open by itself: a failure, a command while it runs, and in a browser what an editor would show. */
function opensItself(card: ToolCard | undefined, inEditor: boolean): boolean {
  if (card === undefined) return false;
  const runs = card.status === "in_progress";
  if (inEditor) return card.status === "failed" || (card.kind === "execute" && runs);
  return card.status === "failed" || card.content.some(({ type }) => type === "diff") || (isCommand(card, inEditor) && (runs || card.seconds !== undefined));
}

export const Tool = memo(({ id }: { readonly id: string }): JSX.Element | null => {
  const { inEditor } = useView();
  const card = useTool(id);
  const permissions = useFact("permissions");
  const asked = permissions.some(({ toolCallId }) => toolCallId === id);
  const [open, setOpen] = useOpen(`tool:${id}`, opensItself(card, inEditor));
  if (!card) return null;
  const { content } = card;
  const foldable = card.input !== undefined || card.locations.length > 0 || content.length > 0;
  const exit = exitOf(card);
  const bodyId = `body-${id}`;
  return (
    <div class={`card ${card.status} kind-${card.kind}${asked ? " asked" : ""}`} data-tool={id} role="group" aria-label={card.title}>
      <div class="row">
        <button
          type="button"
          class="head"
          aria-expanded={foldable ? open : undefined}
          aria-controls={foldable && open ? bodyId : undefined}
          disabled={!foldable}
          onClick={() => {
            setOpen(!open);
          }}
        >
          <Icon name={card.kind} class="kind" />
          <span class="title" title={card.title}>
            {permissions[0]?.toolCallId === id && saysTitle(permissions[0]) ? "Waits for your answer" : card.title}
          </span>
          {exit !== "" && <span class={`exit ${card.status === "failed" ? "failed" : ""}`}>{exit}</span>}
          {card.seconds !== undefined && <span class="seconds">{duration(card.seconds)}</span>}
          <StatusIcon status={card.status} />
          {foldable && <Icon name="chevron" class="chevron" />}
        </button>
        {content.map((each, index) => each.type === "diff" && <Diff key={index} card={card} content={each} />)}
      </div>
      {open && (
        <div class="body" id={bodyId}>
          <Locations card={card} />
          {content.map((each, index) => (
            <Shown key={index} card={card} content={each} />
          ))}
          {(card.input !== undefined || content.some(isOutput)) && <Details card={card} />}
        </div>
      )}
      <Children card={card} />
    </div>
  );
});

/** How a command ended, in two words. */
function exitOf({ exitCode, content }: ToolCard): string {
  if (exitCode !== undefined) return `exit ${exitCode}`;
  const terminal = content.find((each) => each.type === "terminal");
  return terminal?.exit?.replace(/^exit status /u, "exit ") ?? "";
}

function isOutput(content: ToolContent): boolean {
  return content.type === "text" || content.type === "image";
}

function StatusIcon({ status }: { readonly status: ToolStatus }): JSX.Element {
  return (
    <span class={`status ${status}`} title={STATUS[status]}>
      {status === "in_progress" ? <Spinner /> : <Icon name={status} />}
      <span class="unseen">{STATUS[status]}</span>
    </span>
  );
}

/** So many locations are shown of a card. */
const MOST_LOCATIONS = 50;

function Locations({ card }: { readonly card: ToolCard }): JSX.Element | null {
  const { post, inEditor } = useView();
  const shown = card.locations.slice(0, MOST_LOCATIONS);
  const more = card.locations.length - shown.length;
  if (shown.length === 0) return null;
  return (
    <ul class="locations" aria-label="Locations">
      {shown.map(({ path, label, line }, index) => (
        <li key={index}>
          {inEditor ? (
            <button
              type="button"
              class="link"
              title={line === undefined ? path : `${path}:${line}`}
              onClick={() => {
                post(line === undefined ? { type: "openLocation", path } : { type: "openLocation", path, line });
              }}
            >
              {line === undefined ? label : `${label}:${line}`}
            </button>
          ) : (
            <span class="quiet" title={path}>
              {line === undefined ? label : `${label}:${line}`}
            </span>
          )}
        </li>
      ))}
      {more > 0 && <li class="quiet">and {more} more</li>}
    </ul>
  );
}

type DiffContent = Extract<ToolContent, { type: "diff" }>;

/** What a diff changes, in figures; behind them the diff. Its file is named where the card does not. */
function Diff({ card, content: { label, added, removed, isNew, index } }: { readonly card: ToolCard; readonly content: DiffContent }): JSX.Element {
  const { post } = useView();
  return (
    <button
      type="button"
      class="diff"
      title={`Open the diff of ${label}`}
      aria-label={`Open the diff of ${label}: ${added} lines added, ${removed} removed`}
      onClick={() => {
        post({ type: "openDiff", toolCallId: card.toolCallId, index });
      }}
    >
      {!card.title.includes(label) && <span class="label">{label}</span>}
      {isNew && <span class="new">new</span>}
      {added > 0 && <span class="added">+{added}</span>}
      {removed > 0 && <span class="removed">−{removed}</span>}
    </button>
  );
}

function Shown({ card, content }: { readonly card: ToolCard; readonly content: ToolContent }): JSX.Element | null {
  if (content.type === "terminal") return <Terminal card={card} content={content} />;
  if (content.type !== "diff" || content.lines.length === 0) return null;
  const { label, lines, more } = content;
  return (
    <div class="changes" tabIndex={0} role="region" aria-label={`Changes in ${label}`}>
      <DiffLines lines={lines} />
      {more > 0 && <div class="quiet">{more} more lines in the diff</div>}
    </div>
  );
}

interface TerminalProps {
  readonly card: ToolCard;
  readonly content: Extract<ToolContent, { type: "terminal" }>;
}

function Terminal({ card, content }: TerminalProps): JSX.Element {
  const { post, inEditor } = useView();
  const { terminalId, title, tail } = content;
  const output = useRef<HTMLPreElement>(null);
  const sticks = useRef(true);
  useEffect(() => {
    if (output.current && sticks.current) output.current.scrollTop = output.current.scrollHeight;
  }, [tail]);
  return (
    <div class="terminal">
      {title !== card.title && <code>{title}</code>}
      {tail !== "" && (
        <pre
          ref={output}
          tabIndex={0}
          aria-label={`Output of ${title}`}
          onClick={({ target }) => followLink(target, post)}
          onKeyDown={({ key, target }) => key === "Enter" && followLink(target, post)}
          onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
            sticks.current = scrollHeight - scrollTop - clientHeight < 8;
          }}
        >
          {inEditor ? withPlaces(tail) : tail}
        </pre>
      )}
      {inEditor && (
        <button
          type="button"
          class="link"
          onClick={() => {
            post({ type: "openTerminal", terminalId });
          }}
        >
          Show terminal
        </button>
      )}
    </div>
  );
}

function Details({ card }: { readonly card: ToolCard }): JSX.Element {
  const { post, inEditor } = useView();
  const texts = card.content.filter((content) => content.type === "text");
  const command = isCommand(card, inEditor);
  const terminal = card.content.some(({ type }) => type === "terminal");
  return (
    <div class="details">
      {card.input !== undefined && (
        <Fold name="Input" foldKey={`input:${card.toolCallId}`} byDefault={card.content.length === 0 && !command}>
          {() => (
            <pre tabIndex={0} aria-label="Input">
              {card.input}
            </pre>
          )}
        </Fold>
      )}
      {card.content.some(isOutput) && (
        <Fold name={terminal ? "What the model reads of it" : card.status === "pending" ? "About this" : "Output"} foldKey={`output:${card.toolCallId}`} byDefault={!terminal}>
          {() => (
            <Output card={card} command={command}>
              {card.content.map((content, index) => {
                if (content.type === "text" && command) return <pre key={index}>{plainText(unfenced(content.text))}</pre>;
                if (content.type === "text") return <Markdown key={index} text={content.text} />;
                if (content.type === "image") return <Picture key={index} mimeType={content.mimeType} data={content.data} />;
                return null;
              })}
              {texts.length > 0 && card.status !== "pending" && (inEditor || texts.some((text) => text.truncated)) && (
                <p class="whole">
                  {texts.some((text) => text.truncated) && <span class="quiet">Shortened here. </span>}
                  <button
                    type="button"
                    class="link"
                    onClick={() => {
                      post({ type: "openOutput", toolCallId: card.toolCallId });
                    }}
                  >
                    {inEditor ? "Open the output in an editor" : "Show it whole"}
                  </button>
                </p>
              )}
            </Output>
          )}
        </Fold>
      )}
    </div>
  );
}

interface OutputProps {
  readonly card: ToolCard;
  readonly command: boolean;
  readonly children: ComponentChildren;
}

/** A command's stands at its end, where it says how it went, until it is scrolled back. */
function Output({ card, command, children }: OutputProps): JSX.Element {
  const element = useRef<HTMLDivElement>(null);
  const sticks = useRef(true);
  useEffect(() => {
    if (element.current && command && sticks.current) element.current.scrollTop = element.current.scrollHeight;
  }, [command, card]);
  if (!command) return <div class="output">{children}</div>;
  return (
    <div
      class="output"
      ref={element}
      tabIndex={0}
      role="region"
      aria-label={`Output of ${card.title}`}
      onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
        sticks.current = scrollHeight - scrollTop - clientHeight < 8;
      }}
    >
      {children}
    </div>
  );
}

/** The calls that a sub-agent made, below the call that started it. */
function Children({ card }: { readonly card: ToolCard }): JSX.Element | null {
  const { store } = useView();
  const ids = store.children(card.toolCallId);
  const asked = useFact("permissions").some(({ toolCallId }) => isBelow(toolCallId, card.toolCallId, store));
  const [open, setOpen] = useOpen(`children:${card.toolCallId}`, card.status === "in_progress" || asked);
  if (ids.length === 0) return null;
  return (
    <div class="children">
      <FoldButton open={open} setOpen={setOpen}>
        <Icon name="chevron" class="chevron" />
        {ids.length === 1 ? "1 call" : `${ids.length} calls`} of the sub-agent
      </FoldButton>
      {open && ids.map((id) => <Tool key={id} id={id} />)}
    </div>
  );
}
