import type { SessionConfigOption, SessionModeState } from "@agentclientprotocol/sdk";
import type { Picker } from "./messages.js";

/** The id of the picker that is made of `modes`, where an agent has no config option for them. */
export const MODES = "acp:modes";

/**
 * The agent's choices: its config options; modes only if no option has the category `mode`, since an agent with both
 * offers the same choice twice (ACP: session-config-options).
 */
export function pickersOf(options: readonly SessionConfigOption[], modes: SessionModeState | null): Picker[] {
  const pickers = options.map(pickerOf);
  if (modes !== null && modes.availableModes.length > 0 && !options.some((option) => option.category === "mode")) {
    pickers.unshift({
      id: MODES,
      name: "Mode",
      category: "mode",
      value: modes.currentModeId,
      choices: modes.availableModes.map(({ id, name, description }) => ({ value: id, name, ...some("description", description) })),
    });
  }
  return pickers;
}

function pickerOf(option: SessionConfigOption): Picker {
  const shared = { id: option.id, name: option.name, category: option.category ?? "", ...some("description", option.description) };
  if (option.type === "boolean") {
    return { ...shared, value: option.currentValue, choices: [] };
  }
  const choices = option.options.flatMap((entry) =>
    "group" in entry
      ? entry.options.map((inner) => ({ ...choice(inner), group: entry.name }))
      : [choice(entry)],
  );
  return { ...shared, value: option.currentValue, choices };
}

function choice({ value, name, description }: { value: string; name: string; description?: string | null }): Picker["choices"][number] {
  return { value, name, ...some("description", description) };
}

function some<K extends string>(key: K, value: string | null | undefined): { readonly [P in K]?: string } {
  return value === undefined || value === null || value === "" ? {} : ({ [key]: value } as { readonly [P in K]?: string });
}
