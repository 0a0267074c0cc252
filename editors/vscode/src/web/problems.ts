import type { Problems } from "../agent/host.js";

/** What the page says of an agent that it cannot start or look into: that is done on the server's machine. */
export const problems: Problems = {
  // The page comes back by itself, and says so.
  ended: () => null,
  stuck: () => ({
    title: "The agent does not stop.",
    detail: "It was asked to stop but has not responded. What it is doing may take a while.",
    actions: [],
  }),
  login: (message) => ({
    title: "The agent needs a login.",
    detail: message.includes("`acp-coder login") ? `${message}\n\nThat is done on the server's machine.` : `${message}\n\nLog in on the server's machine: \`acp-coder login\`.`,
    actions: [],
  }),
};
