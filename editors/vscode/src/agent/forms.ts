import type { CreateElicitationRequest, CreateElicitationResponse, ElicitationFormMode, ElicitationUrlMode } from "@agentclientprotocol/sdk";
import { INVALID_PARAMS, RequestFailure } from "../agent/link.js";
import type { Field } from "../core/forms.js";
import { fieldsOf } from "../core/forms.js";
import type { PageState } from "./state.js";

/** What the agent asks by forms: one at a time, however many it sends. */
export class Forms {
  private turn: Promise<unknown> = Promise.resolve();
  private lastId = 0;
  private readonly completing = new Map<string, () => void>();

  constructor(private readonly state: PageState) {}

  elicit(request: CreateElicitationRequest, signal: AbortSignal): Promise<CreateElicitationResponse> {
    const { fields, url } = contentOf(request);
    const answer = this.turn.then(() => this.ask(request.message, fields, url, signal));
    this.turn = answer.catch(() => undefined);
    return answer;
  }

  /** The agent has noticed that the action behind a URL was completed. */
  complete(elicitationId: string): void {
    this.completing.get(elicitationId)?.();
  }

  private ask(message: string, fields: readonly Field[], url: ElicitationUrlMode | undefined, signal: AbortSignal): Promise<CreateElicitationResponse> {
    return new Promise((resolve) => {
      this.lastId += 1;
      const id = this.lastId;
      const close = (response: CreateElicitationResponse): void => {
        if (this.state.facts.form?.id === id) {
          this.state.set({ form: null });
        }
        this.completing.delete(url?.elicitationId ?? "");
        resolve(response);
      };
      const cancel = (): void => {
        close({ action: "cancel" });
      };
      if (signal.aborted) {
        cancel();
        return;
      }
      signal.addEventListener("abort", cancel);
      if (url !== undefined) {
        this.completing.set(url.elicitationId, cancel);
      }
      this.state.set({
        form: {
          id,
          message,
          fields,
          ...(url === undefined ? {} : { url: url.url }),
          answer: (action, content) => {
            close(action === "accept" ? { action, content: { ...content } } : { action });
          },
        },
      });
    });
  }
}

function contentOf(request: CreateElicitationRequest): { readonly fields: readonly Field[]; readonly url?: ElicitationUrlMode } {
  if (request.mode === "form") {
    return { fields: fieldsOf((request as ElicitationFormMode).requestedSchema) };
  }
  if (request.mode !== "url") {
    throw new RequestFailure(INVALID_PARAMS, `unknown elicitation mode ${request.mode}`);
  }
  const url = request as ElicitationUrlMode & CreateElicitationRequest;
  if (!/^https?:\/\//iu.test(url.url)) {
    throw new RequestFailure(INVALID_PARAMS, `only web URLs are opened, not ${url.url}`);
  }
  return { fields: [], url };
}
