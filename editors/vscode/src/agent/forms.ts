import type { CreateElicitationRequest, CreateElicitationResponse, ElicitationFormMode, ElicitationUrlMode } from "@agentclientprotocol/sdk";
import { fieldsOf } from "../core/forms.js";
import { Emitter } from "../core/emitter.js";
import type { Form, FormAnswer } from "../core/messages.js";
import { INVALID_PARAMS, RequestFailure } from "./link.js";

/** What the agent asks by forms, which the chat shows: one at a time, however many it sends. */
export class Forms {
  readonly changed = new Emitter<undefined>();
  /** The one that waits for an answer. */
  now: Form | null = null;
  private turn: Promise<unknown> = Promise.resolve();
  private lastId = 0;
  private close: (response: CreateElicitationResponse) => void = () => undefined;
  private readonly completing = new Map<string, () => void>();

  elicit(request: CreateElicitationRequest, signal: AbortSignal): Promise<CreateElicitationResponse> {
    const content = contentOf(request);
    const answer = this.turn.then(() => this.ask(content, signal));
    this.turn = answer.catch(() => undefined);
    return answer;
  }

  /** The agent has noticed that the action behind a URL was completed. */
  complete(elicitationId: string): void {
    this.completing.get(elicitationId)?.();
  }

  answer(id: number, { action, content }: FormAnswer): void {
    if (this.now?.id === id) {
      this.close(action === "accept" ? { action, content: { ...content } } : { action });
    }
  }

  private ask({ elicitationId, ...form }: Asked, signal: AbortSignal): Promise<CreateElicitationResponse> {
    return new Promise((resolve) => {
      const cancel = (): void => {
        close({ action: "cancel" });
      };
      const close = (response: CreateElicitationResponse): void => {
        this.show(null);
        signal.removeEventListener("abort", cancel);
        this.completing.delete(elicitationId ?? "");
        resolve(response);
      };
      if (signal.aborted) {
        resolve({ action: "cancel" });
        return;
      }
      this.close = close;
      signal.addEventListener("abort", cancel);
      if (elicitationId !== undefined) {
        this.completing.set(elicitationId, cancel);
      }
      this.lastId += 1;
      this.show({ ...form, id: this.lastId });
    });
  }

  private show(form: Form | null): void {
    this.now = form;
    this.changed.fire(undefined);
  }
}

type Asked = Omit<Form, "id"> & { readonly elicitationId?: string };

function contentOf(request: CreateElicitationRequest): Asked {
  const { message } = request;
  const sessionId = "sessionId" in request && typeof request.sessionId === "string" ? request.sessionId : "";
  if (request.mode === "form") {
    const { requestedSchema: schema } = request as ElicitationFormMode;
    fieldsOf(schema); // Throws for a field that no form of ours can have.
    return { message, sessionId, schema };
  }
  if (request.mode !== "url") {
    throw new RequestFailure(INVALID_PARAMS, `unknown elicitation mode ${request.mode}`);
  }
  const { url, elicitationId } = request as ElicitationUrlMode & CreateElicitationRequest;
  if (!/^https?:\/\//iu.test(url)) {
    throw new RequestFailure(INVALID_PARAMS, `only web URLs are opened, not ${url}`);
  }
  return { message, sessionId, schema: null, url, elicitationId };
}
