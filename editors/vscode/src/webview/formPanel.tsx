/** What the agent asks by a form, above the box where the user writes. */
import type { JSX } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { type Field, fieldsOf, type Tap, tapOf } from "../core/forms";
import type { Form, FormAnswer, FormValue } from "../core/messages";
import { useFact, useView } from "./context";
import { Icon } from "./icons";

export function FormPanel(): JSX.Element | null {
  const form = useFact("form");
  const may = useFact("may");
  const fields = useMemo(() => (form?.schema ? fieldsOf(form.schema) : []), [form?.id]);
  if (form === null) return null;
  const tap = form.url === undefined ? tapOf(fields) : undefined;
  if (may.answer && tap) return <Tapping key={form.id} form={form} tap={tap} />;
  return may.answer ? <Asking key={form.id} form={form} fields={fields} /> : <p class="quiet">The agent asks: {form.message}</p>;
}

/** Which session asks, where several are open. */
function From({ form: { from } }: { readonly form: Form }): JSX.Element | null {
  return from === undefined ? null : <p class="quiet from">In “{from}”</p>;
}

type Answering = (action: FormAnswer["action"], content?: FormAnswer["content"]) => void;

function useAnswer({ id }: Form): Answering {
  const { post, bus } = useView();
  return (action, content) => {
    post({ type: "form", id, answer: content === undefined ? { action } : { action, content } });
    bus.emit("focus", undefined);
  };
}

/** One tap is the answer. */
function Tapping({ form, tap: { key, choices, other } }: { readonly form: Form; readonly tap: Tap }): JSX.Element {
  const answer = useAnswer(form);
  const [words, setWords] = useState("");
  /** What was written besides; nothing, if it is no answer. */
  const besides = (): Readonly<Record<string, FormValue>> => (other?.input.type === "text" && words !== "" && other.input.check(words) === undefined ? { [other.key]: other.input.value(words) } : {});
  const [wrong, setWrong] = useState<string | undefined>(undefined);
  return (
    <form
      class="question form"
      aria-label="The agent asks"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        if (other?.input.type !== "text") return;
        const refused = words === "" ? "Say something, or choose one." : other.input.check(words);
        setWrong(refused);
        if (refused === undefined) answer("accept", { [other.key]: other.input.value(words) });
      }}
    >
      <div class="asked" role="alert">
        <Icon name="info" />
        <div class="message">{form.message}</div>
      </div>
      <From form={form} />
      <div class="answers taps">
        {choices.map(({ value, label }, index) => (
          <button
            key={index}
            type="button"
            class="option"
            onClick={({ detail }) => {
              // The second click of a double click is not for what the first one has brought here.
              if (detail <= 1) answer("accept", { [key]: value, ...besides() });
            }}
          >
            {label}
          </button>
        ))}
      </div>
      <div class="answers other">
        {other && (
          <>
            <input
              type="text"
              autoComplete="off"
              aria-label={other.title}
              aria-describedby="tap-wrong"
              placeholder={other.title}
              value={words}
              onInput={({ currentTarget }) => {
                setWords(currentTarget.value);
                setWrong(undefined);
              }}
            />
            <button type="submit" class="secondary">
              Send
            </button>
          </>
        )}
        <button
          type="button"
          class="link"
          onClick={() => {
            answer("decline");
          }}
        >
          Decline
        </button>
        <span class="wrong" id="tap-wrong" role="alert">
          {wrong}
        </span>
      </div>
    </form>
  );
}

function Asking({ form, fields }: { readonly form: Form; readonly fields: readonly Field[] }): JSX.Element {
  const { message, url } = form;
  const answer = useAnswer(form);
  const [wrong, setWrong] = useState<Readonly<Record<string, string>>>({});
  const element = useRef<HTMLFormElement>(null);
  const accept = (): void => {
    const found: Record<string, string> = {};
    const content: Record<string, FormValue> = {};
    const given = new FormData(element.current ?? undefined);
    for (const field of fields) {
      const { value, words } = read(field, given);
      if (words !== undefined) found[field.key] = words;
      else if (value !== undefined) content[field.key] = value;
    }
    setWrong(found);
    const [first] = Object.keys(found);
    if (first === undefined) answer("accept", content);
    else element.current?.querySelector<HTMLElement>(`[name="${CSS.escape(first)}"]`)?.focus();
  };
  return (
    <form
      ref={element}
      class="question form"
      aria-label="The agent asks"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        accept();
      }}
    >
      <div class="asked" role="alert">
        <Icon name="info" />
        <div class="message">{message}</div>
      </div>
      <From form={form} />
      {url !== undefined && (
        <p class="url">
          <a class="link" href={url} target="_blank" rel="noreferrer noopener">
            {url}
          </a>
        </p>
      )}
      {fields.length > 0 && (
        <div class="fields">
          {fields.map((field) => (
            <Input key={field.key} field={field} wrong={wrong[field.key]} />
          ))}
        </div>
      )}
      <div class="answers">
        <button type="submit" class="option first">
          {url !== undefined ? "Done" : fields.length === 0 ? "Accept" : "Send"}
        </button>
        <button
          type="button"
          class="option"
          onClick={() => {
            answer("decline");
          }}
        >
          Decline
        </button>
      </div>
    </form>
  );
}

interface InputProps {
  readonly field: Field;
  readonly wrong: string | undefined;
}

function Input({ field: { key, title, description, required, input }, wrong }: InputProps): JSX.Element {
  const id = `form-${key}`;
  const about = (
    <>
      {description !== "" && (
        <span class="quiet" id={`${id}-about`}>
          {description}
        </span>
      )}
      <span class="wrong" id={`${id}-wrong`} role="alert">
        {wrong}
      </span>
    </>
  );
  const shared = { name: key, "aria-describedby": `${id}-about ${id}-wrong`, "aria-invalid": wrong !== undefined };
  const label = required ? title : `${title} (may be left empty)`;
  if (input.type === "text") {
    return (
      <div class="field">
        <label for={id}>{label}</label>
        <input id={id} type="text" autoComplete="off" defaultValue={input.initial} required={required} {...shared} />
        {about}
      </div>
    );
  }
  const many = input.type === "many";
  return (
    <fieldset class="field" aria-describedby={`${id}-about ${id}-wrong`}>
      <legend>{label}</legend>
      {input.choices.map((choice, index) => (
        <label key={index} class="choice">
          <input
            type={many ? "checkbox" : "radio"}
            name={key}
            value={String(index)}
            defaultChecked={many ? input.initial.includes(String(choice.value)) : choice.value === input.initial}
          />
          <span>{choice.label}</span>
        </label>
      ))}
      {about}
    </fieldset>
  );
}

/** The value of a field, or what is wrong with it. */
function read({ key, required, input }: Field, given: FormData): { readonly value?: FormValue; readonly words?: string } {
  if (input.type === "text") {
    const entry = given.get(key);
    const text = typeof entry === "string" ? entry : "";
    const words = input.check(text);
    if (words !== undefined) return { words };
    return text === "" && !required ? {} : { value: input.value(text) };
  }
  const chosen = given.getAll(key).flatMap((index) => input.choices[Number(index)] ?? []);
  if (input.type === "many") {
    const { least, most } = input;
    if (chosen.length < least || chosen.length > most) return { words: least === most ? `Choose ${least}.` : `Choose ${least} to ${most}.` };
    return { value: chosen.map(({ value }) => String(value)) };
  }
  const value = chosen[0]?.value;
  if (value === undefined) return required ? { words: "Choose one." } : {};
  return { value };
}
