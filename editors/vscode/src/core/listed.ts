/** What acp-coder's own commands list, read from their text. */

export interface Remembered {
  readonly number: string;
  /** "always allow npm install". */
  readonly words: string;
}

/** Of `/permissions`. */
export function rememberedIn(text: string): readonly Remembered[] {
  return text.split("\n").flatMap((line) => {
    const [, number, words] = /^- #(\d+) (.+)$/u.exec(line) ?? [];
    return number === undefined || words === undefined ? [] : [{ number, words: words.replaceAll("`", "") }];
  });
}

/** Names of MCP servers, of `config show`. */
export function serversIn(text: string): readonly string[] {
  const named = text.split("\n").flatMap((line) => /^mcp\.servers\.("[^"]+"|[^.]+)\.\S+ = /u.exec(line)?.[1] ?? []);
  return [...new Set(named.map((name) => name.replaceAll('"', "")))];
}

/** The points of a list. */
export function pointsIn(text: string): readonly string[] {
  return text.split("\n").flatMap((line) => (line.startsWith("- ") ? [line.slice(2).replaceAll("`", "")] : []));
}
