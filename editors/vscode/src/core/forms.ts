import type { ElicitationPropertySchema, ElicitationSchema } from "@agentclientprotocol/sdk";

/** A field of an elicitation form, as one question. */
export interface Field {
  readonly key: string;
  readonly title: string;
  readonly description: string;
  readonly required: boolean;
  readonly input:
    | { readonly type: "text"; readonly initial: string; readonly check: (text: string) => string | undefined; readonly value: (text: string) => string | number }
    | { readonly type: "one"; readonly choices: readonly FieldChoice[]; readonly initial: string | boolean | undefined }
    | { readonly type: "many"; readonly choices: readonly FieldChoice[]; readonly initial: readonly string[]; readonly least: number; readonly most: number };
}

export interface FieldChoice {
  /** Absent: the question is left without an answer. */
  readonly value?: string | boolean;
  readonly label: string;
}

/** The questions of a form in order. Throws an Error for a kind of field that ACP does not define. */
export function fieldsOf(schema: ElicitationSchema): Field[] {
  const required = new Set(schema.required ?? []);
  return Object.entries(schema.properties ?? {}).map(([key, property]) => fieldOf(key, property, required.has(key)));
}

/** A form that one tap answers: a question with choices, and perhaps a field for other words. */
export interface Tap {
  readonly key: string;
  readonly choices: readonly { readonly value: string | boolean; readonly label: string }[];
  readonly other: Field | undefined;
}

export function tapOf(fields: readonly Field[]): Tap | undefined {
  const [one, other, ...more] = [...fields].sort((left, right) => Number(right.input.type === "one") - Number(left.input.type === "one"));
  if (one?.input.type !== "one" || more.length > 0 || (other !== undefined && (other.input.type !== "text" || other.required))) {
    return undefined;
  }
  const choices = one.input.choices.flatMap(({ value, label }) => (value === undefined ? [] : [{ value, label }]));
  return { key: one.key, choices, other };
}

function fieldOf(key: string, property: ElicitationPropertySchema, required: boolean): Field {
  const given = property as Record<string, unknown>;
  const shared = { key, title: textOf(given["title"]) || key, description: textOf(given["description"]), required };
  switch (property.type) {
    case "string": {
      const choices = choicesOf(given);
      if (choices.length > 0) {
        const initial = given["default"];
        return { ...shared, input: { type: "one", choices: answerable(choices, required), initial: typeof initial === "string" ? initial : undefined } };
      }
      return { ...shared, input: { type: "text", initial: textOf(given["default"]), check: textCheck(given, required), value: (text) => text } };
    }
    case "number":
    case "integer": {
      const initial = typeof given["default"] === "number" ? String(given["default"]) : "";
      return { ...shared, input: { type: "text", initial, check: numberCheck(given, property.type === "integer", required), value: Number } };
    }
    case "boolean": {
      const initial = typeof given["default"] === "boolean" ? given["default"] : undefined;
      const choices = [
        { value: true, label: "Yes" },
        { value: false, label: "No" },
      ];
      return { ...shared, input: { type: "one", choices: answerable(choices, required), initial } };
    }
    case "array": {
      const items = typeof given["items"] === "object" && given["items"] !== null ? (given["items"] as Record<string, unknown>) : {};
      const choices = choicesOf(items);
      const initial = Array.isArray(given["default"]) ? given["default"].filter((value): value is string => typeof value === "string") : [];
      const least = numberOf(given["minItems"]) ?? (required ? 1 : 0);
      return { ...shared, input: { type: "many", choices, initial, least, most: numberOf(given["maxItems"]) ?? choices.length } };
    }
    default:
      throw new Error(`the form has a field of unknown type ${property.type}: ${key}`);
  }
}

function choicesOf(given: Record<string, unknown>): FieldChoice[] {
  const titled = [given["oneOf"], given["anyOf"]].find(Array.isArray);
  if (titled !== undefined) {
    return titled.flatMap((entry: unknown) => {
      const { const: value, title } = (entry ?? {}) as { const?: unknown; title?: unknown };
      return typeof value === "string" ? [{ value, label: textOf(title) || value }] : [];
    });
  }
  const plain: unknown[] = Array.isArray(given["enum"]) ? given["enum"] : [];
  return plain.flatMap((value) => (typeof value === "string" ? [{ value, label: value }] : []));
}

/** Optional questions can be skipped. */
function answerable(choices: readonly FieldChoice[], required: boolean): FieldChoice[] {
  return required ? [...choices] : [...choices, { label: "(no answer)" }];
}

const FORMATS: Readonly<Record<string, readonly [RegExp, string]>> = {
  email: [/^[^\s@]+@[^\s@]+$/u, "an e-mail address"],
  uri: [/^[a-z][a-z0-9+.-]*:\S+$/iu, "a URI, with its scheme"],
  date: [/^\d{4}-\d{2}-\d{2}$/u, "a date as 2026-12-31"],
  "date-time": [/^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:[Zz]|[+-]\d{2}:?\d{2})$/u, "a date and time as 2026-12-31T23:59:00Z"],
};

function textCheck(given: Record<string, unknown>, required: boolean): (text: string) => string | undefined {
  const least = numberOf(given["minLength"]);
  const most = numberOf(given["maxLength"]);
  const format = FORMATS[textOf(given["format"])];
  const pattern = patternOf(textOf(given["pattern"]));
  return (text) => {
    if (text === "") {
      return required ? "An answer is needed." : undefined;
    }
    const length = Array.from(text).length;
    if (least !== undefined && length < least) {
      return `At least ${String(least)} characters.`;
    }
    if (most !== undefined && length > most) {
      return `At most ${String(most)} characters (${String(length)} now).`;
    }
    if (format !== undefined && !format[0].test(text)) {
      return `Expected ${format[1]}.`;
    }
    return pattern === undefined || pattern.test(text) ? undefined : `Does not match ${pattern.source}.`;
  };
}

function numberCheck(given: Record<string, unknown>, whole: boolean, required: boolean): (text: string) => string | undefined {
  const least = numberOf(given["minimum"]);
  const most = numberOf(given["maximum"]);
  return (text) => {
    if (text.trim() === "") {
      return required ? "A number is needed." : undefined;
    }
    const value = Number(text);
    if (!Number.isFinite(value) || (whole && !Number.isInteger(value))) {
      return whole ? "A whole number is needed." : "A number is needed.";
    }
    if (least !== undefined && value < least) {
      return `At least ${String(least)}.`;
    }
    return most !== undefined && value > most ? `At most ${String(most)}.` : undefined;
  };
}

function patternOf(source: string): RegExp | undefined {
  try {
    return source === "" ? undefined : new RegExp(source, "u");
  } catch {
    return undefined;
  }
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}
