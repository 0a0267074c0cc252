/** The first start in its two steps, on the card of the problem: a provider with its key, then the model. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { StartFacts, StartModels } from "../core/messages";
import { useView } from "./context";
import { Icon } from "./icons";

export function Start({ start }: { readonly start: StartFacts }): JSX.Element {
  return start.models === null ? <Provider start={start} /> : <Model start={start} models={start.models} />;
}

function Provider({ start: { providers, busy, error } }: { readonly start: StartFacts }): JSX.Element {
  const { post } = useView();
  const [chosen, setChosen] = useState(providers.find(({ hasKey }) => hasKey)?.id ?? providers[0]?.id ?? "");
  const [key, setKey] = useState("");
  const provider = providers.find(({ id }) => id === chosen);
  const has = provider?.hasKey === true;
  return (
    <form
      class="form start"
      aria-label="First start"
      onSubmit={(event) => {
        event.preventDefault();
        if (busy || (key.trim() === "" && !has)) return;
        post({ type: "start", provider: chosen, key: key.trim() });
      }}
    >
      <label class="field">
        <span>Provider</span>
        <select
          value={chosen}
          onChange={({ currentTarget }) => {
            setChosen(currentTarget.value);
          }}
        >
          {providers.map(({ id, hasKey }) => (
            <option key={id} value={id}>
              {hasKey ? `${id} (has a key)` : id}
            </option>
          ))}
        </select>
        {provider?.detail !== "" && <span class="quiet">{provider?.detail}</span>}
      </label>
      <label class="field">
        <span>API key</span>
        <input
          type="password"
          autoComplete="off"
          spellcheck={false}
          value={key}
          placeholder={has ? "Stored already" : ""}
          onInput={({ currentTarget }) => {
            setKey(currentTarget.value);
          }}
        />
      </label>
      <button type="submit" class="primary" disabled={busy || (key.trim() === "" && !has)}>
        {busy ? "Asking the provider…" : "Next"}
      </button>
      <p class="wrong" role="alert">
        {error}
      </p>
      <p class="quiet">A model on this machine needs no key: start Ollama or LM Studio, then look again under Details.</p>
    </form>
  );
}

function Model({ start: { busy, error }, models: { provider, names, chosen } }: { readonly start: StartFacts; readonly models: StartModels }): JSX.Element {
  const { post } = useView();
  const [typed, setTyped] = useState("");
  return (
    <form
      class="form start"
      aria-label="First start"
      onSubmit={(event) => {
        event.preventDefault();
        if (!busy) post({ type: "startWith", model: names.length > 0 ? chosen : typed.trim() });
      }}
    >
      <p class="quiet">{provider} has its key.</p>
      {names.length > 0 ? (
        <div class="field">
          <span>Model</span>
          <button
            type="button"
            class="secondary choose"
            role="combobox"
            aria-haspopup="dialog"
            aria-expanded="false"
            aria-label="Model"
            title={`One of ${names.length}`}
            disabled={busy}
            onClick={() => {
              post({ type: "startModel" });
            }}
          >
            <span>{chosen}</span>
            <Icon name="chevron" />
          </button>
        </div>
      ) : (
        <label class="field">
          <span>Model</span>
          <input
            type="text"
            spellcheck={false}
            autoComplete="off"
            value={typed}
            placeholder="The provider’s first one"
            onInput={({ currentTarget }) => {
              setTyped(currentTarget.value);
            }}
          />
        </label>
      )}
      <div class="actions">
        <button type="submit" class="primary" disabled={busy}>
          {busy ? "Starting…" : "Start"}
        </button>
        <button
          type="button"
          class="secondary"
          disabled={busy}
          onClick={() => {
            post({ type: "startAgain" });
          }}
        >
          Back
        </button>
      </div>
      <p class="wrong" role="alert">
        {error}
      </p>
    </form>
  );
}
