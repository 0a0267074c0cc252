/** Getting in: the token is given to the server once, which keeps it in a cookie that no script can read. */

/** `in`: the server knows this browser. `out`: a token is needed. `full`: not now. `offline`: nobody answers. */
export type Entrance = "in" | "out" | "full" | "offline";

const PATIENCE = 15_000;

/** With a token: lets it in. Without: whether it is in already. */
export async function knock(token?: string): Promise<Entrance> {
  try {
    const headers: HeadersInit = token === undefined ? {} : { Authorization: `Bearer ${token}` };
    const { status } = await fetch("/login", { method: "POST", headers, signal: AbortSignal.timeout(PATIENCE) });
    return status === 204 ? "in" : status === 401 || status === 403 ? "out" : status >= 500 || status === 429 ? "full" : "offline";
  } catch {
    return "offline";
  }
}

export async function leave(): Promise<void> {
  await fetch("/logout", { method: "POST", signal: AbortSignal.timeout(PATIENCE) });
}

/** The token of a link (`#token=…`), which is taken off the address at once. */
export function tokenOfAddress(): string | undefined {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) {
    return undefined;
  }
  history.replaceState(null, "", location.pathname);
  return isToken(token) ? token : undefined;
}

/** What can stand in a header. */
export function isToken(token: string): boolean {
  return /^[\w~+/.=-]{1,1024}$/u.test(token);
}

/** The session that the address names (`#session=…`). */
export function sessionOfAddress(): string | undefined {
  return new URLSearchParams(location.hash.slice(1)).get("session") ?? undefined;
}

/** So that a reload, a bookmark and the way back lead to it. */
export function nameSession(id: string | undefined): void {
  const now = sessionOfAddress();
  if (now === id) {
    return;
  }
  const address = id === undefined ? location.pathname : `#session=${encodeURIComponent(id)}`;
  if (now === undefined) {
    history.replaceState(null, "", address);
  } else {
    history.pushState(null, "", address);
  }
}
