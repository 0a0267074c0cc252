/** Asks for a token. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Spinner } from "../webview/icons";
import { useBrowser, usePage } from "./use";

export function Login(): JSX.Element {
  const browser = useBrowser();
  const words = usePage("outWords");
  const [busy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    input.current?.focus();
  }, [words]);
  return (
    <main class="login">
      <form
        aria-labelledby="login"
        onSubmit={(event) => {
          event.preventDefault();
          const token = input.current?.value.trim() ?? "";
          setBusy(true);
          void browser.login(token.replace(/^.*#token=/u, "")).finally(() => {
            setBusy(false);
          });
        }}
      >
        <img src="/icon.svg" alt="" width="48" height="48" />
        <h1 id="login">acp-coder</h1>
        <label for="token">Token</label>
        <input
          ref={input}
          id="token"
          type="password"
          autoComplete="current-password"
          autoCapitalize="off"
          spellcheck={false}
          required
          aria-invalid={words !== ""}
          aria-describedby="token-wrong token-hint"
        />
        <p id="token-wrong" class="wrong" role="alert">
          {words}
        </p>
        <button type="submit" class="primary" disabled={busy}>
          {busy ? <Spinner /> : "Log in"}
        </button>
        <p id="token-hint" class="quiet">
          <code>acp-coder serve</code> shows one at its first start; <code>acp-coder serve token add NAME</code> makes more.
        </p>
      </form>
    </main>
  );
}
