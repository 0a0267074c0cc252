/** What stands in a browser where the extension stands in VS Code: the agent's host, the chat, and what its page asks for. */
import type { ContentBlock, SessionInfo } from "@agentclientprotocol/sdk";
import { Forms } from "../agent/forms.js";
import { GoingBack } from "../agent/goingBack.js";
import { AgentHost } from "../agent/host.js";
import { Unstartable } from "../agent/link.js";
import { Undo } from "../agent/undo.js";
import type { FromPlace } from "../chat/chat.js";
import { Chat } from "../chat/chat.js";
import { pageLinks } from "../core/contentBlocks.js";
import { subjectOf } from "../core/asked.js";
import { outputOf } from "../core/cards.js";
import { Later } from "../core/later.js";
import { diffLines } from "../core/lines.js";
import type { Attachment, FromView, ToView } from "../core/messages.js";
import { ToolCalls } from "../core/toolCalls.js";
import type { What } from "../core/undo.js";
import type { UndoResponse } from "../core/undoMethods.js";
import { figures, sum } from "../core/undo.js";
import { labelOfUri } from "../core/uris.js";
import { messageOf, plural, short, visible } from "../core/words.js";
import { reach } from "./connection.js";
import * as entrance from "./entrance.js";
import * as kept from "./kept.js";
import { filesLike } from "./names.js";
import { Outputs } from "./outputs.js";
import { problems } from "./problems.js";
import { PageState } from "./state.js";
import { Staying } from "./staying.js";

/** Milliseconds after a change until the list of sessions is asked for again. */
const REFRESH = 300;
const MOST_PAGES = 20;

export class Browser {
  readonly state = new PageState();
  readonly host: AgentHost;
  private readonly calls = new ToolCalls();
  private readonly undo: Undo;
  private readonly chat: Chat;
  private readonly back: GoingBack;
  private readonly forms = new Forms();
  private readonly staying: Staying;
  private readonly listing = new Later(REFRESH, () => {
    void this.list();
  });
  /** Pages of sessions that are shown. */
  private pages = 1;

  constructor(
    version: string,
    private readonly post: (message: ToView) => void,
  ) {
    const { calls, forms } = this;
    this.host = new AgentHost({
      calls,
      start: async (side) => {
        try {
          return await reach(addressOf(location), version, {
            ...side,
            elicit: (params, signal) => forms.elicit(params, signal),
            elicitationComplete: (id) => {
              forms.complete(id);
            },
          });
        } catch (error) {
          throw new Unstartable(null, messageOf(error));
        }
      },
      folders: () => [kept.folders()[0] ?? "/"],
      problems,
      log: () => undefined,
    });
    this.undo = new Undo(this.host, calls, () => undefined);
    this.chat = new Chat(this.host, calls, this.undo, {
      post: (message) => {
        this.post(message);
      },
      forms,
      terminals: new Outputs(calls, () => this.host.active?.id),
      blocks: blocksOf,
      session: () => this.session(),
    });
    this.back = new GoingBack(this.host, this.undo, {
      pickWhat: (title) => this.pickWhat(title),
      confirm: (outcome, verb, title) => this.confirm(outcome, verb, title),
      tell: ({ words, done }) => {
        this.state.say(words === "" ? (done ? "Done." : "Nothing was changed.") : words, !done);
      },
      compose: (text, attachments) => {
        this.chat.send({ type: "compose", text, attachments });
      },
    });
    this.staying = new Staying(this.host, this.state, entrance.knock, () => this.arrived());
    this.host.changed.on((change) => {
      if (change.kind === "active" || change.kind === "session") {
        this.look();
      }
      if (change.kind === "session" && (change.change.facts.has("permissions") || change.change.reset)) {
        this.recallRead();
      }
      const ofList = change.kind === "session" && (change.change.facts.has("title") || change.change.facts.has("running"));
      if (change.kind === "sessions" || change.kind === "active" || ofList) {
        this.listing.soon();
      }
      if (change.kind === "agent") {
        this.state.set({ mayPrompt: this.host.may.prompt });
      }
    });
  }

  // --- coming and going -------------------------------------------------------------------------------------------

  /** The first thing: with the token of a link, or the cookie of an earlier visit. */
  async enter(): Promise<void> {
    const token = entrance.tokenOfAddress();
    if (token === undefined) {
      await this.staying.now();
    } else {
      await this.login(token);
    }
  }

  async login(token: string): Promise<void> {
    const found = entrance.isToken(token) ? await entrance.knock(token) : "out";
    if (found === "in") {
      this.state.set({ outWords: "" });
      await this.staying.now();
      return;
    }
    const words = {
      out: "The server does not know this token.",
      full: "The server lets nobody in now: too many connections, or too many wrong tokens. Try again in a minute.",
      offline: "The server does not answer.",
    };
    this.state.set({ stage: "out", outWords: words[found] });
  }

  logout(): void {
    this.guarded(() => this.forget());
  }

  private async forget(): Promise<void> {
    const sure = await this.state.ask({
      title: "Log out?",
      lines: ["This browser forgets the token. Sessions stay on the server."],
      choices: [{ id: "yes", label: "Log out", kind: "primary" }],
    });
    if (sure !== "yes") {
      return;
    }
    await entrance.leave();
    this.staying.end();
    this.rest();
    await this.host.stop();
    kept.forgetAll();
    entrance.nameSession(undefined);
    this.state.set({ stage: "out", outWords: "", sessions: [], listed: false, linkWords: "" });
  }

  reconnect(): void {
    this.guarded(() => this.staying.now());
  }

  /** The page is seen again, or the network has come back. */
  awake(): void {
    this.staying.look();
  }

  private async arrived(): Promise<void> {
    const { active } = this.host;
    if (active !== undefined) {
      if (this.host.session(active.id) !== active) {
        await this.host.openSession(active.id, "load", active.cwd);
      }
    } else {
      const last = kept.lastSession();
      await this.openNamed(entrance.sessionOfAddress() ?? last?.id);
    }
    await this.list();
  }

  /** Another session is in the address: the way back was taken, or a link. */
  navigated(): void {
    const token = entrance.tokenOfAddress();
    this.guarded(async () => {
      if (token !== undefined) {
        await this.login(token);
      } else if (this.state.facts.stage === "in") {
        const id = entrance.sessionOfAddress();
        if (id === undefined) {
          this.rest();
        } else if (id !== this.host.active?.id) {
          await this.openNamed(id);
        }
      }
    });
  }

  private async openNamed(id: string | undefined): Promise<void> {
    if (id === undefined) {
      return;
    }
    try {
      const cwd = await this.folderOf(id);
      if (cwd === undefined) {
        throw new Error("The session does not exist (any more).");
      }
      await this.host.openSession(id, "load", cwd);
    } catch (error) {
      if (this.host.running === undefined) {
        throw error;
      }
      kept.keepSession(undefined);
      entrance.nameSession(undefined);
      this.state.say(messageOf(error), true);
    }
  }

  private async folderOf(id: string): Promise<string | undefined> {
    const last = kept.lastSession();
    if (last?.id === id) {
      return last.cwd;
    }
    let cursor: string | undefined;
    for (let page = 0; page < MOST_PAGES; page += 1) {
      const { sessions, nextCursor } = await this.host.pageOfSessions(cursor);
      const found = sessions.find(({ sessionId }) => sessionId === id);
      if (found !== undefined || !nextCursor) {
        return found?.cwd;
      }
      cursor = nextCursor;
    }
    return undefined;
  }

  // --- sessions ---------------------------------------------------------------------------------------------------

  /** The sessions that the list shows, asked for anew. */
  private async list(): Promise<void> {
    if (!this.isLinked()) {
      return;
    }
    try {
      const sessions: SessionInfo[] = [];
      let cursor: string | undefined;
      for (let page = 0; page < this.pages; page += 1) {
        const answer = await this.host.pageOfSessions(cursor);
        sessions.push(...answer.sessions);
        cursor = answer.nextCursor ?? undefined;
        if (cursor === undefined) {
          break;
        }
      }
      this.state.set({ sessions, cursor, listed: true });
    } catch (error) {
      if (this.isLinked()) {
        this.state.say(`The sessions could not be listed: ${messageOf(error)}`, true);
      }
    }
  }

  private isLinked(): boolean {
    return this.host.running !== undefined;
  }

  more(): void {
    this.pages += 1;
    void this.list();
  }

  open({ sessionId, cwd }: SessionInfo): void {
    this.state.set({ drawer: false });
    this.guarded(() => this.host.openSession(sessionId, "load", cwd));
  }

  /** Throws what the server says of the folder. */
  async begin(folder: string): Promise<void> {
    await this.host.newSession(folder);
    kept.keepFolder(folder);
    this.chat.send({ type: "focus" });
  }

  /** No session is shown: a new one may be begun. */
  rest(): void {
    this.host.lookAt(undefined);
    this.state.set({ drawer: false });
  }

  close(): void {
    const { active } = this.host;
    if (active !== undefined) {
      this.guarded(() => this.host.closeSession(active.id));
    }
  }

  remove({ sessionId, title }: SessionInfo): void {
    this.guarded(async () => {
      const sure = await this.state.ask({
        title: "Delete the session?",
        lines: [`“${short(title ?? "", 120) || "Untitled"}” is deleted on the server, for good.`],
        choices: [{ id: "yes", label: "Delete", kind: "danger" }],
      });
      if (sure === "yes") {
        await this.host.deleteSession(sessionId);
      }
    });
  }

  /** For a prompt: the page shows none to write in without a session. */
  private async session(): ReturnType<AgentHost["ready"]> {
    if (this.host.running === undefined) {
      throw new Error("There is no connection to the server now.");
    }
    return await this.host.ready();
  }

  private look(): void {
    const { active } = this.host;
    const before = this.state.facts.active;
    const working = this.host.all.filter((session) => session.working).map(({ id }) => id);
    if (working.join() !== [...this.state.facts.working].join()) {
      this.state.set({ working: new Set(working) });
    }
    if (active?.id !== before?.id || active?.title !== before?.title) {
      this.state.set({ active: active === undefined ? null : { id: active.id, cwd: active.cwd, title: active.title } });
    }
    if (active?.id !== before?.id && this.state.facts.stage === "in") {
      kept.keepSession(active);
      entrance.nameSession(active?.id);
    }
  }

  /** A question that was read before the page was loaded again need not be read twice. */
  private recallRead(): void {
    const { active } = this.host;
    for (const { id, seen, about } of active?.questions ?? []) {
      if (!seen && kept.wasRead(subjectOf(about))) {
        active?.see(id);
      }
    }
  }

  // --- what the chat asks for -------------------------------------------------------------------------------------

  receive(message: FromView): void {
    const question = message.type === "seen" ? this.host.active?.questions.find(({ id }) => id === message.id) : undefined;
    if (question !== undefined) {
      kept.keepRead(subjectOf(question.about));
    }
    this.guarded(async () => {
      const more = await this.chat.receive(message);
      if (more !== undefined) {
        await this.serve(more);
      }
    });
  }

  stop(): void {
    this.host.active?.stop();
  }

  private async serve(message: FromPlace): Promise<void> {
    switch (message.type) {
      case "restore":
        await this.back.restore(message.prompt);
        return;
      case "fork":
        await this.back.fork(message.prompt);
        return;
      case "command":
        if (message.command === "acpCoder.redo") {
          await this.back.redo();
        }
        return;
      case "complete":
        // Files are the server's; the protocol lists none, so it is asked beside it.
        this.chat.send({ type: "completions", request: message.request, entries: await filesLike(this.host.active?.cwd ?? "", message.query) });
        return;
      case "openLink":
        this.follow(message.href);
        return;
      case "openDiff":
        await this.showDiff(message.toolCallId, message.index);
        return;
      case "openOutput":
        await this.showOutput(message.toolCallId);
        return;
      case "openLocation":
      case "openTerminal":
      case "change":
      case "choose":
      case "insert":
      case "start":
      case "startModel":
      case "startWith":
      case "startAgain":
        return;
    }
  }

  private follow(href: string): void {
    if (/^(?:https?|mailto):/iu.test(href)) {
      window.open(href, "_blank", "noopener,noreferrer");
    } else {
      this.state.say(`${visible(href)} is a file on the server's machine.`);
    }
  }

  private async showDiff(toolCallId: string, index: number): Promise<void> {
    const content = this.calls.get(this.host.active?.id ?? "", toolCallId)?.content[index];
    if (content?.type === "diff") {
      const lines = diffLines(content.oldText ?? "", content.newText).map(visible);
      await this.state.ask({ title: "Changes", diffs: [{ label: content.path, lines }], choices: [] });
    }
  }

  private async showOutput(toolCallId: string): Promise<void> {
    const record = this.calls.get(this.host.active?.id ?? "", toolCallId);
    if (record !== undefined) {
      await this.state.ask({ title: record.title, text: outputOf(record, () => undefined), choices: [] });
    }
  }

  private async pickWhat(title: string): Promise<What | undefined> {
    const chosen = await this.state.ask({
      title: `Restore to before “${title}”`,
      lines: ["What do you want to restore?"],
      choices: [
        { id: "both", label: "Files and chat", detail: "as before this prompt", kind: "secondary" },
        { id: "files", label: "Files", detail: "the chat stays", kind: "secondary" },
        { id: "conversation", label: "Chat", detail: "the files stay", kind: "secondary" },
      ],
    });
    return chosen as What | undefined;
  }

  private async confirm({ changes, conflicts, words }: UndoResponse, verb: string, title: string): Promise<boolean | undefined> {
    const mergeable = conflicts.filter((conflict) => conflict.mergeable).length;
    const chosen = await this.state.ask({
      title,
      lines: [
        ...(words === "" ? [] : [words]),
        changes.length === 0 ? "No file changes." : `This changes ${sum(changes)}.`,
        ...conflicts.map(({ path, why }) => `Left alone: ${labelOfUri(path)}: ${why}`),
      ],
      diffs: changes.map((change) => ({
        label: [change.path, figures(change), change.words].filter((text) => text !== "").join("  "),
        lines: change.shown ? diffLines(change.oldText ?? "", change.newText ?? "").map(visible) : [],
      })),
      choices: [
        { id: "plain", label: verb, kind: "primary" },
        ...(mergeable === 0 ? [] : [{ id: "merge", label: `${verb}, and merge ${plural(mergeable, "file")} that you have changed`, kind: "secondary" as const }]),
      ],
    });
    return chosen === undefined ? undefined : chosen === "merge";
  }

  /** What goes wrong is said, unless the link is lost, which is said already. */
  private guarded(run: () => Promise<unknown>): void {
    run().catch((error: unknown) => {
      if (this.host.running !== undefined || this.state.facts.linkWords === "") {
        this.state.say(messageOf(error), true);
      }
    });
  }
}

export function addressOf({ protocol, host }: Pick<Location, "protocol" | "host">): string {
  return `${protocol === "https:" ? "wss" : "ws"}://${host}/acp`;
}

export function blocksOf(text: string, attachments: readonly Attachment[]): ContentBlock[] {
  const more = attachments.flatMap((attachment): ContentBlock[] =>
    attachment.kind === "image"
      ? [{ type: "image", mimeType: attachment.mimeType, data: attachment.data }]
      : attachment.kind === "file"
        ? [{ type: "resource_link", uri: attachment.uri, name: attachment.label }]
        : [],
  );
  return [{ type: "text", text }, ...more, ...pageLinks(text, attachments)];
}
