/** The whole view, from top to bottom, and what it shows where there is no conversation. */
import type { ComponentChildren, JSX } from "preact";
import { Announcer } from "./announcer";
import { Composer, Onlooker } from "./composer";
import { useChunks, useFact, useView, type View, ViewContext } from "./context";
import { Conversation } from "./conversation";
import { UsageLine } from "./footer";
import { FormPanel } from "./formPanel";
import { Icon, Spinner } from "./icons";
import { Changes, Plan, ProblemBanner, Queue, Redo } from "./panels";
import { Question } from "./permission";

interface AppProps {
  readonly view: View;
  /** What stands where there is no conversation, if not the hints of the editor. */
  readonly empty?: ComponentChildren;
}

export function App({ view, empty }: AppProps): JSX.Element {
  return (
    <ViewContext.Provider value={view}>
      <div class="chat">
        <Title />
        <ProblemBanner />
        <Conversation>
          <Empty instead={empty} />
          <Working />
        </Conversation>
        <div class="bottom">
          <Plan />
          <Queue />
          <Changes />
          <Redo />
          <Question />
          <FormPanel />
          <Bottom />
          <UsageLine />
        </div>
        <Announcer />
      </div>
    </ViewContext.Provider>
  );
}

/** The box where the user writes, where they may and there is somebody to write to. */
function Bottom(): JSX.Element | null {
  const { inEditor } = useView();
  const may = useFact("may");
  const session = useFact("session");
  if (!inEditor && !session) return null;
  return may.prompt ? <Composer /> : <Onlooker />;
}

function Title(): JSX.Element | null {
  const session = useFact("session");
  if (!session || session.title === "") return null;
  return (
    <h1 class="session" title={session.title}>
      {session.title}
    </h1>
  );
}

function Empty({ instead }: { readonly instead: ComponentChildren }): JSX.Element | null {
  const agent = useFact("agent");
  const loading = useFact("loading");
  const images = useFact("images");
  const problem = useFact("problem");
  const commands = useFact("commands");
  const chunks = useChunks();
  if (chunks.length > 0 || (problem && !loading)) return null;
  if (loading || agent.status === "starting") {
    return (
      <div class="empty" role="status">
        <Spinner />
        <p>{agent.status === "starting" ? `Starting ${agent.name}…` : "Loading the conversation…"}</p>
      </div>
    );
  }
  if (instead !== undefined) return <>{instead}</>;
  return (
    <div class="empty">
      <Icon name="spark" class="large" />
      <p class="first">What should {agent.name} do in this workspace?</p>
      <ul>
        <li>
          <kbd>@</kbd> adds files, symbols, the selection, problems and more
        </li>
        {commands.length > 0 && (
          <li>
            <kbd>/</kbd> shows the agent’s commands
          </li>
        )}
        {images && <li>Pictures can be pasted</li>}
        <li>
          <kbd>Enter</kbd> sends, <kbd>Shift</kbd>+<kbd>Enter</kbd> begins a new line
        </li>
      </ul>
    </div>
  );
}

/** Below the last item, while the agent works and has nothing to show for it yet. */
function Working(): JSX.Element | null {
  const { store } = useView();
  const running = useFact("running");
  const stopping = useFact("stopping");
  const [permission] = useFact("permissions");
  const form = useFact("form");
  useChunks();
  if (!running) return null;
  const last = store.lastItem();
  if (!stopping && (permission || form || last?.type === "agent" || last?.type === "thought")) return null;
  return (
    <div class="working">
      <Spinner />
      {stopping ? "Stopping…" : "Working…"}
    </div>
  );
}
