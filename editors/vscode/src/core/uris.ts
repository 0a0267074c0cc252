/** A short name for a URI or a path: the last part, with the lines it points to. */
export function labelOfUri(uri: string): string {
  const [place = "", fragment = ""] = uri.split("#", 2);
  const name = place.replace(/[/\\]+$/u, "").split(/[/\\]/u).at(-1) ?? place;
  const decoded = decoded_(name === "" ? place : name);
  const lines = /^L(\d+)(?:[-:]L?(\d+))?$/u.exec(fragment);
  if (lines === null) {
    return decoded;
  }
  const [, from = "", to] = lines;
  return to === undefined || to === from ? `${decoded}:${from}` : `${decoded}:${from}-${to}`;
}

function decoded_(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}
