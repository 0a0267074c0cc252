/**
 * The card of a tool call, the same element from its first message to its last, keyed by `toolCallId`.
 *
 * What one wants to see at once stands open: locations, diffs, a running terminal, the calls of a sub-agent that works.
 * Input and output are folded.
 */
import { memo } from "preact/compat";
import { useEffect, useRef } from "preact/hooks";
import type { ComponentChildren, JSX } from "preact";
import type { ToolCard, ToolContent, ToolStatus } from "../core/messages";
import { DiffLines } from "./diff";
import { useFact, useOpen, useTool, useView } from "./context";
import { Icon, Spinner } from "./icons";
import { Picture } from "./picture";
import { Markdown } from "./markdown";
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

export const Tool = memo(({ id }: { readonly id: string }): JSX.Element | null => {
  const { inEditor } = useView();
  const card = useTool(id);
  const permissions = useFact("permissions");
  const asked = permissions.some(({ toolCallId }) => toolCallId === id);
  const [open, setOpen] = useOpen(`tool:${id}`, card?.status === "failed" || (isCommand(card, inEditor) && (card?.status === "in_progress" || card?.seconds !== undefined)));
  if (!card) return null;
  const foldable = card.input !== undefined || card.content.some(isOutput);
  const bodyId = `body-${id}`;
  return (
    <div class={`card ${card.status} kind-${card.kind}${asked ? " asked" : ""}`} data-tool={id} role="group" aria-label={card.title}>
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
        {card.exitCode !== undefined && <span class={`exit ${card.exitCode === 0 ? "" : "failed"}`}>exit {card.exitCode}</span>}
        {card.seconds !== undefined && <span class="seconds">{duration(card.seconds)}</span>}
        <StatusIcon status={card.status} />
        {foldable && <Icon name="chevron" class="chevron" />}
      </button>
      <Locations card={card} open={open} />
      {card.content.map((content, index) => (
        <Shown key={index} card={card} content={content} />
      ))}
      {foldable && open && <Details card={card} id={bodyId} />}
      <Children card={card} />
    </div>
  );
});

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

/** So many locations are shown of a card that is closed. */
const FEW = 3;

function Locations({ card, open }: { readonly card: ToolCard; readonly open: boolean }): JSX.Element | null {
  const { post, inEditor } = useView();
  if (card.locations.length === 0) return null;
  const shown = open ? card.locations : card.locations.slice(0, FEW);
  const more = card.locations.length - shown.length;
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

/** What is not folded: diffs and terminals. */
function Shown({ card, content }: { readonly card: ToolCard; readonly content: ToolContent }): JSX.Element | null {
  const { post } = useView();
  if (content.type === "terminal") return <Terminal card={card} content={content} />;
  if (content.type !== "diff") return null;
  const { label, added, removed, isNew, index, lines, more } = content;
  return (
    <>
      <button
        type="button"
        class="diff"
        title={`Open the diff of ${label}`}
        onClick={() => {
          post({ type: "openDiff", toolCallId: card.toolCallId, index });
        }}
      >
        <Icon name="diff" />
        <span class="label">{label}</span>
        {isNew && <span class="new">new</span>}
        <span class="added" aria-label={`${added} lines added`}>
          +{added}
        </span>
        <span class="removed" aria-label={`${removed} lines removed`}>
          −{removed}
        </span>
      </button>
      {lines.length > 0 && (
        <div class="changes" tabIndex={0} role="region" aria-label={`Changes in ${label}`}>
          <DiffLines lines={lines} />
          {more > 0 && <div class="quiet">{more} more lines in the diff</div>}
        </div>
      )}
    </>
  );
}

interface TerminalProps {
  readonly card: ToolCard;
  readonly content: Extract<ToolContent, { type: "terminal" }>;
}

function Terminal({ card, content }: TerminalProps): JSX.Element {
  const { post, inEditor } = useView();
  const { terminalId, title, tail, exit } = content;
  const runs = card.status === "in_progress" || card.status === "pending";
  const [open, setOpen] = useOpen(`terminal:${terminalId}`, runs || card.status === "failed");
  const output = useRef<HTMLPreElement>(null);
  const sticks = useRef(true);
  useEffect(() => {
    if (output.current && sticks.current) output.current.scrollTop = output.current.scrollHeight;
  }, [tail, open]);
  return (
    <div class="terminal">
      <div class="line">
        <button
          type="button"
          class="fold"
          aria-expanded={open}
          title={title}
          onClick={() => {
            setOpen(!open);
          }}
        >
          <Icon name="chevron" class="chevron" />
          {title === card.title ? "Output" : <code>{title}</code>}
        </button>
        {exit !== undefined && <span class="exit">{exit}</span>}
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
      {open && tail !== "" && (
        <pre
          ref={output}
          tabIndex={0}
          aria-label={`Output of ${title}`}
          onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
            sticks.current = scrollHeight - scrollTop - clientHeight < 8;
          }}
        >
          {tail}
        </pre>
      )}
    </div>
  );
}

function Details({ card, id }: { readonly card: ToolCard; readonly id: string }): JSX.Element {
  const { post, inEditor } = useView();
  const texts = card.content.filter((content) => content.type === "text");
  const command = isCommand(card, inEditor);
  return (
    <div class="details" id={id}>
      {card.input !== undefined && (
        <Fold name="Input" foldKey={`input:${card.toolCallId}`} byDefault={texts.length === 0 && !command}>
          {() => (
            <pre tabIndex={0} aria-label="Input">
              {card.input}
            </pre>
          )}
        </Fold>
      )}
      {card.content.some(isOutput) && (
        <Fold name={card.status === "pending" ? "About this" : "Output"} foldKey={`output:${card.toolCallId}`} byDefault>
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

interface FoldProps {
  readonly name: string;
  readonly foldKey: string;
  readonly byDefault: boolean;
  /** Called only when it is open. */
  readonly children: () => JSX.Element;
}

function Fold({ name, foldKey, byDefault, children }: FoldProps): JSX.Element {
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

/** The calls that a sub-agent made, below the call that started it. */
function Children({ card }: { readonly card: ToolCard }): JSX.Element | null {
  const { store } = useView();
  const ids = store.children(card.toolCallId);
  const asked = useFact("permissions").some(({ toolCallId }) => isBelow(toolCallId, card.toolCallId, store));
  const [open, setOpen] = useOpen(`children:${card.toolCallId}`, card.status === "in_progress" || asked);
  if (ids.length === 0) return null;
  return (
    <div class="children">
      <button
        type="button"
        class="fold"
        aria-expanded={open}
        onClick={() => {
          setOpen(!open);
        }}
      >
        <Icon name="chevron" class="chevron" />
        {ids.length === 1 ? "1 call" : `${ids.length} calls`} of the sub-agent
      </button>
      {open && ids.map((id) => <Tool key={id} id={id} />)}
    </div>
  );
}
