/**
 * A change as the whole file's text before and after. ACP's `oldText` is the file's text, but some agents send only
 * the changed part: if that part occurs once in the file, the rest of the file is added around it.
 *
 * `current` is the file's current text (undefined if it does not exist), `made` whether the change was made already.
 */
export function wholeFile(oldText: string, newText: string, current: string | undefined, made: boolean): { before: string; after: string } {
  const asSent = { before: oldText, after: newText };
  if (current === undefined || oldText === "") {
    return asSent;
  }
  const [part, other] = made ? [newText, oldText] : [oldText, newText];
  if (part === "" || part.length >= current.length) {
    return asSent;
  }
  const start = current.indexOf(part);
  if (start < 0 || current.indexOf(part, start + 1) >= 0) {
    return asSent;
  }
  const changed = current.slice(0, start) + other + current.slice(start + part.length);
  return made ? { before: changed, after: current } : { before: current, after: changed };
}
