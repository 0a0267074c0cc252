import type * as acp from "@agentclientprotocol/sdk";
import * as vscode from "vscode";
import { INVALID_PARAMS, RequestFailure } from "../agent/link.js";
import type { Field, FieldChoice, Tap } from "../core/forms.js";
import { fieldsOf, tapOf } from "../core/forms.js";
import { plain } from "../core/words.js";

type Value = acp.ElicitationContentValue;
type Answer = { readonly kind: "value"; readonly value: Value | undefined } | { readonly kind: "back" | "decline" | "cancel" };

const DECLINE: vscode.QuickInputButton = { iconPath: new vscode.ThemeIcon("circle-slash"), tooltip: "Decline to answer" };
const BACK = vscode.QuickInputButtons.Back;

/** Forms as a sequence of quick inputs; one question at a time, however many agents ask. */
export class Elicitation {
  private turn: Promise<unknown> = Promise.resolve();
  private readonly waiting = new Map<string, () => void>();

  elicit(request: acp.CreateElicitationRequest, signal: AbortSignal): Promise<acp.CreateElicitationResponse> {
    const answer = this.turn.then(() => this.ask(request, signal));
    this.turn = answer.catch(() => undefined);
    return answer;
  }

  /** The agent has noticed that the action behind a URL was completed. */
  complete(elicitationId: string): void {
    this.waiting.get(elicitationId)?.();
  }

  private async ask(request: acp.CreateElicitationRequest, signal: AbortSignal): Promise<acp.CreateElicitationResponse> {
    if (signal.aborted) {
      return { action: "cancel" };
    }
    if (request.mode === "url") {
      return await openUrl(request as acp.ElicitationUrlMode & { message: string }, signal);
    }
    if (request.mode !== "form") {
      throw new RequestFailure(INVALID_PARAMS, `unknown elicitation mode ${request.mode}`);
    }
    return await fill(request.message, fieldsOf((request as acp.ElicitationFormMode).requestedSchema), signal);
  }
}

async function openUrl(request: acp.ElicitationUrlMode & { message: string }, signal: AbortSignal): Promise<acp.CreateElicitationResponse> {
  const uri = vscode.Uri.parse(request.url, true);
  if (uri.scheme !== "https" && uri.scheme !== "http") {
    throw new RequestFailure(INVALID_PARAMS, `only web URLs are opened, not ${request.url}`);
  }
  const chosen = await Promise.race([
    vscode.window.showInformationMessage(plain(`The agent asks you to open ${request.url}`), { modal: true, detail: request.message }, "Open", "Decline"),
    aborted(signal),
  ]);
  if (chosen === "Open") {
    return { action: (await vscode.env.openExternal(uri)) ? "accept" : "cancel" };
  }
  return { action: chosen === "Decline" ? "decline" : "cancel" };
}

async function fill(message: string, fields: readonly Field[], signal: AbortSignal): Promise<acp.CreateElicitationResponse> {
  const content: Record<string, Value> = {};
  if (fields.length === 0) {
    const chosen = await Promise.race([vscode.window.showInformationMessage(plain(message), { modal: true }, "Accept", "Decline"), aborted(signal)]);
    return chosen === "Accept" ? { action: "accept", content } : { action: chosen === "Decline" ? "decline" : "cancel" };
  }
  const tap = tapOf(fields);
  if (tap !== undefined) {
    return await tapped(message, tap, signal);
  }
  let index = 0;
  while (index < fields.length) {
    const field = fields[index];
    if (field === undefined) {
      break;
    }
    const answer = await question(message, field, index, fields.length, content[field.key], signal);
    if (answer.kind === "value") {
      if (answer.value === undefined) {
        // eslint-disable-next-line @typescript-eslint/no-dynamic-delete -- the form's own keys
        delete content[field.key];
      } else {
        content[field.key] = answer.value;
      }
      index += 1;
    } else if (answer.kind === "back") {
      index -= 1;
    } else {
      return { action: answer.kind };
    }
  }
  return { action: "accept", content };
}

async function question(
  message: string,
  field: Field,
  index: number,
  count: number,
  earlier: Value | undefined,
  signal: AbortSignal,
): Promise<Answer> {
  const input = field.input.type === "text" ? textInput(field, earlier) : picker(field, earlier);
  input.title = message;
  input.step = index + 1;
  input.totalSteps = count;
  input.buttons = index > 0 ? [BACK, DECLINE] : [DECLINE];
  return await shown(input, () => valueOf(field, input), signal);
}

/** One choice is the answer; so is what is typed, where other words may be given. */
async function tapped(message: string, { key, choices, other }: Tap, signal: AbortSignal): Promise<acp.CreateElicitationResponse> {
  const pick = vscode.window.createQuickPick<vscode.QuickPickItem & { readonly content: Record<string, Value> }>();
  const offered = choices.map(({ label, value }) => ({ label, content: { [key]: value } }));
  pick.title = message;
  pick.items = offered;
  pick.buttons = [DECLINE];
  if (other?.input.type === "text") {
    const { check, value } = other.input;
    pick.placeholder = "Choose, or write your own answer";
    pick.onDidChangeValue((words) => {
      const written = words.trim() !== "" && check(words) === undefined;
      pick.items = written ? [...offered, { label: words, description: other.title, alwaysShow: true, content: { [other.key]: value(words) } }] : offered;
    });
  }
  let content: Record<string, Value> = {};
  const accepted = (): Answer | undefined => {
    const [chosen] = pick.selectedItems;
    content = chosen?.content ?? {};
    return chosen && { kind: "value", value: undefined };
  };
  const { kind } = await shown(pick, accepted, signal);
  return kind === "value" ? { action: "accept", content } : { action: kind === "decline" ? "decline" : "cancel" };
}

type Input = Pick<vscode.InputBox, "ignoreFocusOut" | "onDidTriggerButton" | "onDidHide" | "onDidAccept" | "show" | "hide" | "dispose">;

/** What the user accepts, as soon as `accepted` takes it. */
async function shown(input: Input, accepted: () => Answer | undefined, signal: AbortSignal): Promise<Answer> {
  input.ignoreFocusOut = true;
  const cancel = (): void => {
    input.hide();
  };
  signal.addEventListener("abort", cancel);
  try {
    return await new Promise<Answer>((resolve) => {
      input.onDidTriggerButton((button) => {
        resolve({ kind: button === BACK ? "back" : "decline" });
      });
      input.onDidHide(() => {
        resolve({ kind: "cancel" });
      });
      input.onDidAccept(() => {
        const answer = accepted();
        if (answer !== undefined) {
          resolve(answer);
        }
      });
      input.show();
    });
  } finally {
    signal.removeEventListener("abort", cancel);
    input.dispose();
  }
}

type ChoiceItem = vscode.QuickPickItem & { readonly choice: FieldChoice };

function textInput(field: Field, earlier: Value | undefined): vscode.InputBox {
  const box = vscode.window.createInputBox();
  box.prompt = [field.title, field.description].filter((text) => text !== "").join(": ") + (field.required ? "" : " (may be left empty)");
  if (field.input.type === "text") {
    const { check } = field.input;
    box.value = earlier === undefined ? field.input.initial : String(earlier);
    box.onDidChangeValue((text) => {
      box.validationMessage = check(text);
    });
  }
  return box;
}

function picker(field: Field, earlier: Value | undefined): vscode.QuickPick<ChoiceItem> {
  const pick = vscode.window.createQuickPick<ChoiceItem>();
  pick.placeholder = [field.title, field.description].filter((text) => text !== "").join(": ");
  if (field.input.type !== "text") {
    const items = field.input.choices.map((choice) => ({ label: choice.label, choice }));
    pick.items = items;
    pick.canSelectMany = field.input.type === "many";
    const chosen: unknown = earlier ?? field.input.initial;
    const selected = chosen === undefined ? [] : items.filter(({ choice }) => (Array.isArray(chosen) ? chosen.includes(choice.value) : choice.value === chosen));
    if (pick.canSelectMany) {
      pick.selectedItems = selected;
    } else {
      pick.activeItems = selected;
    }
  }
  return pick;
}

/** Undefined while the input is invalid: it then says why. */
function valueOf(field: Field, input: vscode.InputBox | vscode.QuickPick<ChoiceItem>): Answer | undefined {
  if (field.input.type === "text" && "value" in input && "validationMessage" in input) {
    const wrong = field.input.check(input.value);
    input.validationMessage = wrong;
    if (wrong !== undefined) {
      return undefined;
    }
    const empty = input.value === "" && !field.required;
    return { kind: "value", value: empty ? undefined : field.input.value(input.value) };
  }
  const chosen = "selectedItems" in input ? input.selectedItems.map(({ choice }) => choice.value) : [];
  if (field.input.type === "many" && "placeholder" in input) {
    const { least, most } = field.input;
    if (chosen.length < least || chosen.length > most) {
      input.placeholder = least === most ? `Choose ${String(least)}` : `Choose ${String(least)} to ${String(most)}`;
      return undefined;
    }
    return { kind: "value", value: chosen.map(String) };
  }
  const [value] = chosen;
  return value === undefined && field.required ? undefined : { kind: "value", value };
}

function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => {
      resolve(undefined);
    });
  });
}
