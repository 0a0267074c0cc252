/** The agent at the other end of a WebSocket: one text frame, one message. */
import { PROTOCOL_VERSION } from "@agentclientprotocol/sdk";
import type { AnyMessage, ClientCapabilities, Stream } from "@agentclientprotocol/sdk";
import type { AgentLink, ConversationSide, Ended } from "../agent/link.js";
import { linked, speaking } from "../agent/speaking.js";

const NAME = "acp-coder-page";
/** Milliseconds for the server to open the socket, and to answer `initialize`. */
const PATIENCE = 15_000;
const NORMAL_CLOSURE = 1000;

/** The agent works on the server's machine, so it gets neither files nor terminals of this one. */
const CAPABILITIES: ClientCapabilities = {
  elicitation: { form: {}, url: {} },
  session: { notices: {}, compaction: {}, configOptions: { boolean: {} } },
};

/** Throws if the server does not answer as an ACP agent does. */
export async function reach(address: string, version: string, side: ConversationSide): Promise<AgentLink> {
  const socket = new WebSocket(address);
  const ended = endOf(socket);
  const connection = speaking(NAME, side).connect(streamOf(socket));
  connection.closed.catch(() => undefined);
  try {
    const answer = connection.agent.request("initialize", {
      protocolVersion: PROTOCOL_VERSION,
      clientCapabilities: CAPABILITIES,
      clientInfo: { name: NAME, title: "acp-coder's page", version },
    });
    answer.catch(() => undefined);
    const initialized = await within(PATIENCE, Promise.race([answer, ended.then(refuse)]));
    if (initialized.protocolVersion !== PROTOCOL_VERSION) {
      throw new Error("The server speaks another version of the Agent Client Protocol: reload the page.");
    }
    return linked(connection, initialized, {
      pid: undefined,
      ended,
      end: () => {
        socket.close(NORMAL_CLOSURE);
        return Promise.resolve();
      },
    });
  } catch (error) {
    connection.close();
    socket.close(NORMAL_CLOSURE);
    throw error;
  }
}

function refuse(): never {
  throw new Error("The server closed the connection.");
}

function endOf(socket: WebSocket): Promise<Ended> {
  return new Promise((resolve) => {
    socket.addEventListener("close", ({ code, reason }) => {
      resolve({ code, signal: null, stderr: reason, wanted: code === NORMAL_CLOSURE });
    });
  });
}

/** What is sent before the socket is open waits for it. */
export function streamOf(socket: WebSocket): Stream {
  const opened = new Promise<void>((resolve, reject) => {
    socket.addEventListener("open", () => {
      resolve();
    });
    socket.addEventListener("close", () => {
      reject(new Error("The connection is closed."));
    });
  });
  opened.catch(() => undefined);
  const readable = new ReadableStream<AnyMessage>({
    start: (controller) => {
      let isOver = false;
      const over = (): void => {
        if (!isOver) {
          isOver = true;
          try {
            controller.close();
          } catch {
            // Its reader has given it up before.
          }
        }
      };
      socket.addEventListener("message", ({ data }: MessageEvent<unknown>) => {
        if (isOver || typeof data !== "string") {
          return;
        }
        try {
          controller.enqueue(JSON.parse(data) as AnyMessage);
        } catch {
          // No message: the server does not send such a thing, and nothing could be answered.
          socket.close();
          over();
        }
      });
      socket.addEventListener("close", over);
    },
    cancel: () => {
      socket.close(NORMAL_CLOSURE);
    },
  });
  const writable = new WritableStream<AnyMessage>({
    write: async (message) => {
      await opened;
      if (socket.readyState !== WebSocket.OPEN) {
        throw new Error("The connection is closed.");
      }
      socket.send(JSON.stringify(message));
    },
    close: () => {
      socket.close(NORMAL_CLOSURE);
    },
    abort: () => {
      socket.close();
    },
  });
  return { readable, writable };
}

/** The value of `promise`, or an error after so many milliseconds. */
export async function within<T>(milliseconds: number, promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new Error("The server does not answer."));
    }, milliseconds);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
