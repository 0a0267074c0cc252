/** Starts the page: the chat's parts in a browser, with the agent at the other end of a WebSocket. */
import { render } from "preact";
import { start } from "../webview/start";
import { Browser } from "./browser";
import { keepViewState, viewState } from "./kept";
import { Page } from "./page";
import "./page.css";

declare const VERSION: string;

const api = {
  postMessage: (message: unknown): void => {
    browser.receive(message as Parameters<Browser["receive"]>[0]);
  },
  getState: viewState,
  setState: keepViewState,
};
const { view, receive, leave } = start(api, (run) => requestAnimationFrame(run), false);
const browser = new Browser(VERSION, receive);

document.addEventListener("visibilitychange", () => {
  leave();
  if (document.visibilityState === "visible") browser.awake();
});
window.addEventListener("pagehide", leave);
window.addEventListener("online", () => {
  browser.awake();
});
window.addEventListener("hashchange", () => {
  browser.navigated();
});

/** What the on-screen keyboard leaves, where the browser does not make the page smaller by itself. */
const fit = (): void => {
  const { visualViewport } = window;
  if (visualViewport && visualViewport.scale === 1) {
    document.documentElement.style.setProperty("--height", `${visualViewport.height}px`);
    if (visualViewport.offsetTop > 0) window.scrollTo(0, 0);
  }
};
window.visualViewport?.addEventListener("resize", fit);
window.visualViewport?.addEventListener("scroll", fit);

render(<Page browser={browser} view={view} />, document.getElementById("root") ?? document.body);
view.post({ type: "ready" });
void browser.enter();
