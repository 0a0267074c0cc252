/** What the browser keeps of earlier visits. A browser that keeps nothing is as good. */

const FOLDERS = "acp-coder.folders";
const LAST = "acp-coder.last";
const VIEW = "acp-coder.view";
const READ = "acp-coder.read";
const MOST_FOLDERS = 8;
const MOST_READ = 20;
const MOST_READ_CHARS = 50_000;

/** Where sessions were begun, the last one first. */
export function folders(): readonly string[] {
  const found = read(localStorage, FOLDERS);
  return Array.isArray(found) ? found.filter((one): one is string => typeof one === "string") : [];
}

export function keepFolder(folder: string): void {
  write(localStorage, FOLDERS, [folder, ...folders().filter((other) => other !== folder)].slice(0, MOST_FOLDERS));
}

/** The session that was open last. */
export function lastSession(): { readonly id: string; readonly cwd: string } | undefined {
  const { id, cwd } = (read(localStorage, LAST) ?? {}) as { id?: unknown; cwd?: unknown };
  return typeof id === "string" && typeof cwd === "string" ? { id, cwd } : undefined;
}

export function keepSession(session: { readonly id: string; readonly cwd: string } | undefined): void {
  write(localStorage, LAST, session === undefined ? null : { id: session.id, cwd: session.cwd });
}

/** Of this tab: what questions were about that were read to their end. */
export function wasRead(subject: string): boolean {
  return readSubjects().includes(subject);
}

export function keepRead(subject: string): void {
  if (subject.length <= MOST_READ_CHARS) {
    write(sessionStorage, READ, [subject, ...readSubjects().filter((other) => other !== subject)].slice(0, MOST_READ));
  }
}

function readSubjects(): readonly unknown[] {
  const found = read(sessionStorage, READ);
  return Array.isArray(found) ? (found as readonly unknown[]) : [];
}

/** Of this tab: what is being written, and what stands open. */
export function viewState(): unknown {
  return read(sessionStorage, VIEW);
}

export function keepViewState(state: unknown): void {
  write(sessionStorage, VIEW, state);
}

/** Nothing of it is for whoever comes next. */
export function forgetAll(): void {
  for (const name of [FOLDERS, LAST]) {
    localStorage.removeItem(name);
  }
  sessionStorage.removeItem(VIEW);
  sessionStorage.removeItem(READ);
}

function read(storage: Storage, name: string): unknown {
  try {
    return JSON.parse(storage.getItem(name) ?? "null") as unknown;
  } catch {
    return null;
  }
}

function write(storage: Storage, name: string, value: unknown): void {
  try {
    storage.setItem(name, JSON.stringify(value));
  } catch {
    // Full (pictures in what is being written) or forbidden.
  }
}
