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

/** A path as the user knows it: relative to the session's folder where it is in it, else its last part. */
export function labelIn(folder: string | undefined, path: string): string {
  return folder !== undefined && folder !== "" && path.startsWith(`${folder}/`) ? path.slice(folder.length + 1) : labelOfUri(path);
}

function decoded_(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}
