/** From one changed place to the next, through all files. */

export interface Step {
  readonly path: string;
  /** From 0. */
  readonly line: number;
}

/** `places`: the lines of each file, in their order. Behind the last of a file comes another file; nothing where there is none. */
export function stepFrom(places: ReadonlyMap<string, readonly number[]>, here: Step, by: 1 | -1): Step | undefined {
  const inFile = places.get(here.path) ?? [];
  const next = by > 0 ? inFile.find((line) => line > here.line) : inFile.filter((line) => line < here.line).at(-1);
  if (next !== undefined) {
    return { path: here.path, line: next };
  }
  const files = [...places].filter(([, lines]) => lines.length > 0);
  const at = files.findIndex(([path]) => path === here.path);
  const [path, lines = []] = files.at(at < 0 ? (by > 0 ? 0 : -1) : (at + by) % files.length) ?? [];
  const line = lines.at(by > 0 ? 0 : -1);
  return path === undefined || line === undefined ? undefined : { path, line };
}
