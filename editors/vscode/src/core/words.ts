/** Texts for a user. */

/** "0.4 s", "12 s", "2 min 5 s". */
export function duration(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 10) {
    return `${seconds.toFixed(1)} s`;
  }
  if (seconds < 60) {
    return `${String(Math.floor(seconds))} s`;
  }
  const whole = Math.floor(seconds);
  return `${String(Math.floor(whole / 60))} min ${String(whole % 60)} s`;
}

/** The text on one line, cut to `most` characters with an ellipsis. */
export function short(text: string, most: number): string {
  const line = text.replace(/\s+/gu, " ").trim();
  const points = Array.from(line);
  return points.length <= most ? line : `${points.slice(0, most - 1).join("").trimEnd()}…`;
}

/** At most so many characters of a long text, none of them in halves, and how many more there are. */
export function beginning(text: string, most: number): string {
  const whole = text.slice(0, most).replace(/[\ud800-\udbff]$/u, "");
  return text.length <= most ? text : `${whole}\n… (${String(text.length - whole.length)} more characters are left out)`;
}

/** The message of whatever was thrown, with what JSON-RPC errors carry in `data`. */
export function messageOf(error: unknown): string {
  if (typeof error !== "object" || error === null) {
    return String(error);
  }
  const { message, data } = error as { message?: unknown; data?: unknown };
  const said = typeof message === "string" && message !== "" ? message : "unknown error";
  const more =
    typeof data === "string"
      ? data
      : typeof data === "object" && data !== null
        ? ["details", "detail", "message"].map((key) => (data as Record<string, unknown>)[key]).find((text): text is string => typeof text === "string")
        : undefined;
  return more === undefined || said.includes(more) ? said : `${said}: ${more}`;
}

export function codeOf(error: unknown): number | undefined {
  const code = typeof error === "object" && error !== null ? (error as { code?: unknown }).code : undefined;
  return typeof code === "number" ? code : undefined;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${String(count)} ${count === 1 ? one : many}`;
}

/** Without the code block around the whole of it, also if its end was cut off. */
export function unfenced(text: string): string {
  const opening = /^(`{3,})[^\n`]*\n/u.exec(text);
  if (opening === null) {
    return text;
  }
  const body = text.slice(opening[0].length);
  const end = `\n${opening[1] ?? ""}`;
  return body.endsWith(end) ? body.slice(0, -end.length) : body.includes(`${end}\n`) ? text : body;
}

/** Terminal output as plain text: no escape sequences, carriage returns as a terminal would show them. */
export function plainText(text: string): string {
  const sequences = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])/gu;
  return text
    .replace(sequences, "")
    .replace(/\r+\n/gu, "\n")
    .split("\n")
    .map((line) => line.slice(line.lastIndexOf("\r") + 1))
    .join("\n")
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/gu, "");
}

/** For notifications of VS Code, which make links of `[text](command:…)`: the same to read, and no link. */
export function plain(text: string): string {
  return text.replace(/\](?=\()/gu, "]\u200b");
}

/** For labels in which VS Code draws `$(name)` as an icon: the same to read, and no icon. */
export function withoutIcons(text: string): string {
  return text.replace(/\$(?=\()/gu, "$\u200b");
}

/**
 * Shows characters that change the text direction, move the cursor or are invisible as their code, so that nobody is
 * misled: by Unicode's Default_Ignorable_Code_Point. Tabs and line ends stay.
 */
export function visible(text: string): string {
  const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/gu;
  const code = (char: string): string => (char.codePointAt(0) ?? 0).toString(16);
  const number = (char: string): string => (char.length === 1 ? `\\u${code(char).padStart(4, "0")}` : `\\U${code(char).padStart(8, "0")}`);
  const shown = text.replace(/\r\n/gu, "\n").replace(controls, (char) => `\\x${code(char).padStart(2, "0")}`);
  return shown.replace(/[\p{Default_Ignorable_Code_Point}\u2028\u2029]/gu, number);
}

/** How long ago an ISO 8601 time was, in words. */
export function ago(time: string | undefined): string {
  const then = time === undefined ? Number.NaN : Date.parse(time);
  if (Number.isNaN(then)) {
    return "";
  }
  const minutes = Math.max(0, Math.round((Date.now() - then) / 60_000));
  if (minutes < 60) {
    return minutes === 0 ? "now" : `${String(minutes)} min ago`;
  }
  const hours = Math.round(minutes / 60);
  return hours < 48 ? `${String(hours)} h ago` : `${String(Math.round(hours / 24))} days ago`;
}
