/** Starts the chat view: what the extension says goes into the store, what the user does goes back. */
import { render } from "preact";
import type { ToView } from "../core/messages";
import { App } from "./app";
import { start } from "./start";
import type { ViewApi } from "./memory";
import "./styles/chat.css";

declare function acquireVsCodeApi(): ViewApi;

const { view, receive, leave } = start(acquireVsCodeApi(), (run) => {
  requestAnimationFrame(run);
});
window.addEventListener("message", (event: MessageEvent<ToView>) => {
  receive(event.data);
});
document.addEventListener("visibilitychange", leave);
window.addEventListener("pagehide", leave);
window.addEventListener("focus", () => {
  if (document.activeElement === document.body) view.bus.emit("focus", undefined);
});
render(<App view={view} />, document.getElementById("root") ?? document.body);
view.post({ type: "ready" });
