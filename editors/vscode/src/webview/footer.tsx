/** Below the box where the user writes: what may be chosen, and what was used. */
import { memo } from "preact/compat";
import type { JSX } from "preact";
import type { Picker } from "../core/messages";
import { useFact, useView } from "./context";
import { Icon, type IconName } from "./icons";
import { money, tokens } from "./words";

export function Pickers(): JSX.Element | null {
  const pickers = useFact("pickers");
  if (pickers.length === 0) return null;
  return (
    <div class="pickers">
      {pickers.map((picker) => (picker.choices.length === 0 ? <Switch key={picker.id} picker={picker} /> : <Choice key={picker.id} picker={picker} />))}
    </div>
  );
}

const ICONS: Readonly<Record<string, IconName>> = { mode: "switch_mode", model: "spark", thought_level: "think" };

interface PickerProps {
  readonly picker: Picker;
}

const Switch = memo(({ picker }: PickerProps) => {
  const { post } = useView();
  const { id, name, description, value } = picker;
  return (
    <label class="switch" title={description ?? name}>
      <input
        type="checkbox"
        role="switch"
        checked={value === true}
        onChange={(event) => {
          post({ type: "pick", id, value: event.currentTarget.checked });
        }}
      />
      {name}
    </label>
  );
});

const Choice = memo(({ picker }: PickerProps) => {
  const { post, inEditor } = useView();
  const { id, name, description, value, choices, category } = picker;
  const chosen = choices.find((choice) => choice.value === value);
  const groups = [...new Set(choices.map(({ group }) => group))];
  const option = (choice: Picker["choices"][number]): JSX.Element => (
    <option key={choice.value} value={choice.value} title={choice.description}>
      {choice.name}
    </option>
  );
  if (inEditor) {
    const says = chosen?.name ?? String(value);
    return (
      <button
        type="button"
        class={`picker ${category}`}
        role="combobox"
        aria-haspopup="dialog"
        aria-expanded="false"
        aria-label={name}
        title={`${name}: ${says}${chosen?.description === undefined ? "" : ` (${chosen.description})`}`}
        onClick={() => {
          post({ type: "choose", id });
        }}
      >
        <Icon name={ICONS[category] ?? "other"} />
        <span>{says}</span>
      </button>
    );
  }
  const select = (
    <select
      class="picker"
      data-category={picker.category}
      aria-label={name}
      title={[description ?? name, chosen?.description].filter((text) => text !== undefined).join(": ")}
      value={String(value)}
      onChange={(event) => {
        post({ type: "pick", id, value: event.currentTarget.value });
      }}
    >
      {!chosen && <option value={String(value)}>{String(value)}</option>}
      {groups.map((group) =>
        group === undefined ? (
          choices.filter((choice) => choice.group === undefined).map(option)
        ) : (
          <optgroup key={group} label={group}>
            {choices.filter((choice) => choice.group === group).map(option)}
          </optgroup>
        ),
      )}
    </select>
  );
  // Its choices do not say what they are of: "Default", "High".
  if (category !== "thought_level") return select;
  return (
    <label class="labelled" title={description ?? name}>
      <span>{name}</span>
      {select}
    </label>
  );
});

export function UsageLine(): JSX.Element | null {
  const usage = useFact("usage");
  if (!usage) return null;
  const { used, size, cost } = usage;
  const share = size > 0 ? Math.min(1, used / size) : 0;
  const percent = Math.round(share * 100);
  return (
    <div class="usage" title={`${used.toLocaleString("en")} of ${size.toLocaleString("en")} tokens of the context used`}>
      {size > 0 && <meter min={0} max={1} high={0.8} optimum={0} value={share} aria-label={`Context: ${percent} % used`} />}
      <span>{size > 0 ? `${tokens(used)} of ${tokens(size)} tokens (${percent} %)` : `${tokens(used)} tokens`}</span>
      {cost && <span class="cost">{money(cost.amount, cost.currency)}</span>}
    </div>
  );
}
