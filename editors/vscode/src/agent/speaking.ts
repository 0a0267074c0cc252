/** What a connection to an agent is, whatever carries it: a program's pipes or a WebSocket. It loads the SDK. */
import { client, RequestError } from "@agentclientprotocol/sdk";
import type { AnyMessage, ClientApp, ClientConnection, Stream } from "@agentclientprotocol/sdk";
import { codeOf, messageOf } from "../core/words.js";
import type { AgentLink, ConversationSide, OnWire } from "./link.js";
import { INTERNAL_ERROR } from "./link.js";

/** A client that answers what every agent may ask. */
export function speaking(name: string, side: ConversationSide): ClientApp {
  return client({ name })
    .onNotification("session/update", ({ params }) => {
      side.update(params);
    })
    .onRequest("session/request_permission", ({ params, signal }) => told(side.requestPermission(params, signal)))
    .onRequest("elicitation/create", ({ params, signal }) => told(side.elicit(params, signal)))
    .onNotification("elicitation/complete", ({ params }) => {
      side.elicitationComplete(params.elicitationId);
    });
}

/** `carrier`: what the messages go through, and how it is ended. */
export function linked(
  connection: ClientConnection,
  initialized: AgentLink["initialized"],
  carrier: Pick<AgentLink, "pid" | "ended"> & { readonly end: () => Promise<void> },
): AgentLink {
  return {
    initialized,
    pid: carrier.pid,
    ended: carrier.ended,
    request: (method, params, signal) => connection.agent.request(method, params, signal ? { cancellationSignal: signal } : {}),
    extension: (method, params) => connection.agent.request(method, params),
    notify: (method, params) => {
      connection.agent.notify(method, params).catch(() => undefined);
    },
    close: async () => {
      connection.close();
      await carrier.end();
    },
  };
}

export function once<T>(answer: () => T): Promise<T> {
  return new Promise((resolve) => {
    resolve(answer());
  });
}

/** Errors with their codes; anything else thrown becomes an internal error with a message. */
export async function told<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    throw new RequestError(codeOf(error) ?? INTERNAL_ERROR, messageOf(error));
  }
}

/** The stream, with each message passed to `onWire`. */
export function tapped(wire: Stream, onWire: OnWire): Stream {
  const tap = (direction: "sent" | "received"): TransformStream<AnyMessage, AnyMessage> =>
    new TransformStream<AnyMessage, AnyMessage>({
      transform(message, controller) {
        onWire(direction, message);
        controller.enqueue(message);
      },
    });
  const outgoing = tap("sent");
  outgoing.readable.pipeTo(wire.writable).catch(() => undefined);
  return { readable: wire.readable.pipeThrough(tap("received")), writable: outgoing.writable };
}
