/** What stands between the conversation and the box where the user writes: the plan, the queue, what can be redone; and the problem above all. */
import type { JSX } from "preact";
import type { PlanEntry, Problem } from "../core/messages";
import { cacheFiles } from "../core/undo";
import { plural } from "../core/words";
import { useFact, useOpen, useView } from "./context";
import { Start } from "./firstStart";
import { Fold, FoldButton } from "./folds";
import { Icon, IconButton, Spinner } from "./icons";
import { Markdown } from "./markdown";

const PLAN_WORDS: Readonly<Record<PlanEntry["status"], string>> = {
  pending: "to do",
  in_progress: "being done",
  completed: "done",
};

export function Plan(): JSX.Element | null {
  const plan = useFact("plan");
  const { turn, runs } = useFact("planOf");
  const done = plan.filter(({ status }) => status === "completed").length;
  // By hand it stays as it is until it is done, or its turn ends: then it is folded.
  const goesOn = runs && done < plan.length;
  const [open, setOpen] = useOpen(`plan:${turn}:${goesOn ? "runs" : "over"}`, goesOn);
  if (plan.length === 0) return null;
  const current = plan.find(({ status }) => status === "in_progress") ?? plan.find(({ status }) => status === "pending");
  return (
    <details
      class="panel plan"
      open={open}
      onToggle={(event) => {
        if (event.currentTarget.open !== open) setOpen(event.currentTarget.open);
      }}
    >
      <summary>
        <Icon name="chevron" class="chevron" />
        <span class="name">Plan</span>
        <span class="count">
          {done} of {plan.length} done
        </span>
        {!open && current && <span class="current">{current.content}</span>}
        <progress max={plan.length} value={done} aria-label="Plan" />
      </summary>
      {open && (
        <ul>
          {plan.map(({ content, priority, status }, index) => (
            <li key={index} class={`${status} ${priority}`}>
              {status === "in_progress" && runs ? <Spinner /> : <Icon name={status === "completed" ? "completed" : "pending"} />}
              <span class="unseen">{PLAN_WORDS[status]}:</span>
              <span>{content}</span>
              {priority === "high" && status !== "completed" && <span class="urgent">high</span>}
            </li>
          ))}
        </ul>
      )}
    </details>
  );
}

export function Queue(): JSX.Element | null {
  const { post } = useView();
  const queue = useFact("queue");
  if (queue.length === 0) return null;
  return (
    <section class="panel queue" aria-label="Sent next">
      <div class="name">Sent next</div>
      <ul>
        {queue.map(({ id, text, now }) => (
          <li key={id}>
            <Icon name="queue" />
            <span class="text" title={text}>
              {text}
            </span>
            {now && (
              <button
                type="button"
                class="now"
                title="Say it now: the agent reads it after the tools that are running"
                aria-label={`Say it now: ${text}`}
                onClick={() => {
                  post({ type: "steer", id });
                }}
              >
                <Icon name="send" />
              </button>
            )}
            <button
              type="button"
              class="remove"
              title="Remove from the queue"
              aria-label={`Remove from the queue: ${text}`}
              onClick={() => {
                post({ type: "unqueue", id });
              }}
            >
              <Icon name="close" />
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What the last prompt changed, until it is kept or taken back; with its files. */
export function Changes(): JSX.Element | null {
  const { post, inEditor } = useView();
  const changes = useFact("changes");
  const running = useFact("running");
  const [open, setOpen] = useOpen("changes", false);
  const counted = changes.filter(({ cache }) => !cache);
  const caches = changes.filter(({ cache }) => cache);
  if (!inEditor || running || counted.length === 0) return null;
  const act = (name: "review" | "keep" | "undo", path?: string) => (): void => {
    post(path === undefined ? { type: "change", act: name } : { type: "change", act: name, path });
  };
  const sum = { added: counted.reduce((all, { added }) => all + added, 0), removed: counted.reduce((all, { removed }) => all + removed, 0) };
  return (
    <section class="panel changed" aria-label="Changes of the last prompt">
      <div class="row">
        <FoldButton open={open} setOpen={setOpen}>
          <Icon name="chevron" class="chevron" />
          <span>{plural(counted.length, "file")}</span>
          <Figures {...sum} />
        </FoldButton>
        <ChangeButton label="Review" title="Show all changes in the diff editor" act={act("review")} />
        <ChangeButton label="Keep" title="Keep all changes" act={act("keep")} />
        <ChangeButton label="Undo" title="Take all changes back, after a preview" act={act("undo")} />
      </div>
      {open && (
        <ul>
          {counted.map(({ path, label, added, removed }) => (
            <li key={path} class="row">
              <button type="button" class="link label" title={`Show the diff of ${path}`} onClick={act("review", path)}>
                {label}
              </button>
              <Figures added={added} removed={removed} />
              <ChangeButton label="Keep" title={`Keep the changes of ${label}`} act={act("keep", path)} />
              <ChangeButton label="Undo" title={`Take the changes of ${label} back`} act={act("undo", path)} />
            </li>
          ))}
          {caches.length > 0 && (
            <li class="quiet" title={caches.map(({ label }) => label).join("\n")}>
              {cacheFiles(caches.length)}, which programs make again: Undo takes them back, too
            </li>
          )}
        </ul>
      )}
    </section>
  );
}

function Figures({ added, removed }: { readonly added: number; readonly removed: number }): JSX.Element {
  return (
    <span class="figures">
      {added > 0 && <span class="added">+{added}</span>}
      {removed > 0 && <span class="removed">−{removed}</span>}
    </span>
  );
}

function ChangeButton({ label, title, act }: { readonly label: string; readonly title: string; readonly act: () => void }): JSX.Element {
  return (
    <button
      type="button"
      class="link"
      title={title}
      aria-label={title}
      onClick={({ detail }) => {
        // The second click of a double click is not for the file that has moved here.
        if (detail <= 1) act();
      }}
    >
      {label}
    </button>
  );
}

/** After something was taken back, until the next prompt. */
export function Redo(): JSX.Element | null {
  const { post } = useView();
  const { redo } = useFact("prompts");
  const running = useFact("running");
  if (!redo || running) return null;
  return (
    <section class="panel redo" aria-label="Taken back">
      <span class="name">Taken back</span>
      <button
        type="button"
        class="link"
        onClick={() => {
          post({ type: "command", command: "acpCoder.redo" });
        }}
      >
        <Icon name="redo" />
        <span>Redo</span>
      </button>
    </section>
  );
}

export function ProblemBanner(): JSX.Element | null {
  const { post } = useView();
  const problem = useFact("problem");
  const start = useFact("start");
  const { status } = useFact("agent");
  if (!problem) return null;
  const more = (
    <>
      {problem.detail !== "" && <Markdown text={problem.detail} />}
      <ProblemActions problem={problem} primary={!start} />
    </>
  );
  return (
    <section class={`problem ${problem.first === true ? "first" : ""}`} role="alert">
      <Icon name={problem.first === true ? "spark" : "error"} />
      <div class="what">
        <strong>{start ? (start.models === null ? "Choose a provider" : "Choose a model") : problem.title}</strong>
        {start && <Start start={start} />}
        {start ? (
          <Fold name="Details" foldKey="problem:details" byDefault={false}>
            {() => more}
          </Fold>
        ) : (
          more
        )}
      </div>
      {status === "ready" && (
        <IconButton
          icon="close"
          label="Close"
          title="Close"
          act={() => {
            post({ type: "dismiss" });
          }}
        />
      )}
    </section>
  );
}

function ProblemActions({ problem, primary }: { readonly problem: Problem; readonly primary: boolean }): JSX.Element | null {
  const { post } = useView();
  if (problem.actions.length === 0) return null;
  return (
    <div class="actions">
      {problem.actions.map(({ label, command, argument }, index) => (
        <button
          key={index}
          type="button"
          class={primary && index === 0 ? "primary" : "secondary"}
          onClick={() => {
            post(argument === undefined ? { type: "command", command } : { type: "command", command, argument });
          }}
        >
          {label}
        </button>
      ))}
    </div>
  );
}
