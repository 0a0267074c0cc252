/** Decides which addresses a message of the agent may link to. The extension opens them; the view never navigates. */

const SCHEMES = ["http", "https", "mailto", "file"];

/** The address to open, or null unless it is a web page, a mail address, a file, or a path of the workspace. */
export function safeHref(address: string): string | null {
  // Browsers skip control characters in a scheme, and so might see another scheme than this code.
  const href = address.trim().replace(/[\u0000-\u001f\u007f]/g, "");
  if (href === "" || href.startsWith("#") || /^[\\/]{2}/.test(href)) return null;
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(href)?.[1]?.toLowerCase();
  if (scheme === undefined || SCHEMES.includes(scheme)) return href;
  // `C:\name` is a path, and so is `name.py:12`.
  return scheme.length === 1 || /^[^:]+\.[a-z0-9]+:\d+(?::\d+)?$/i.test(href) ? href : null;
}
