// @vitest-environment jsdom
import type { AnyMessage } from "@agentclientprotocol/sdk";
import { expect, test } from "vitest";
import { addressOf, blocksOf } from "../../../src/web/browser.js";
import { streamOf, within } from "../../../src/web/connection.js";

class Socket extends EventTarget {
  readyState = 0;
  readonly sent: string[] = [];
  closed = 0;
  send(text: string): void {
    this.sent.push(text);
  }
  close(): void {
    this.closed += 1;
  }
  open(): void {
    this.readyState = WebSocket.OPEN;
    this.dispatchEvent(new Event("open"));
  }
  say(data: unknown): void {
    this.dispatchEvent(new MessageEvent("message", { data }));
  }
}

const ONE: AnyMessage = { jsonrpc: "2.0", method: "one" };

function rig(): { socket: Socket; reader: ReadableStreamDefaultReader<AnyMessage>; writer: WritableStreamDefaultWriter<AnyMessage> } {
  const socket = new Socket();
  const { readable, writable } = streamOf(socket as unknown as WebSocket);
  return { socket, reader: readable.getReader(), writer: writable.getWriter() };
}

test("what is sent before the socket is open waits for it, and is one frame each", async () => {
  const { socket, writer } = rig();
  const sent = writer.write(ONE);
  await Promise.resolve();
  expect(socket.sent).toEqual([]);
  socket.open();
  await sent;
  expect(socket.sent).toEqual(['{"jsonrpc":"2.0","method":"one"}']);
});

test("frames are messages, binary ones are none, and the socket's end is the stream's", async () => {
  const { socket, reader } = rig();
  socket.say(new ArrayBuffer(1));
  socket.say(JSON.stringify(ONE));
  socket.dispatchEvent(new CloseEvent("close"));
  expect(await reader.read()).toEqual({ done: false, value: ONE });
  expect((await reader.read()).done).toBe(true);
});

test("a frame that is no JSON ends the connection", async () => {
  const { socket, reader } = rig();
  socket.say("{");
  expect((await reader.read()).done).toBe(true);
  expect(socket.closed).toBe(1);
});

test("a reader that has given up is not told of the end again", async () => {
  const { socket, reader } = rig();
  await reader.cancel();
  socket.dispatchEvent(new CloseEvent("close"));
  socket.say(JSON.stringify(ONE));
  expect(socket.closed).toBe(1);
});

test("what is sent to a socket that has closed fails", async () => {
  const { socket, writer } = rig();
  const sent = writer.write(ONE);
  socket.dispatchEvent(new CloseEvent("close"));
  await expect(sent).rejects.toThrow("The connection is closed.");
});

test("an answer that does not come is an error", async () => {
  await expect(within(1, new Promise(() => undefined))).rejects.toThrow("does not answer");
  await expect(within(10_000, Promise.resolve(7))).resolves.toBe(7);
});

test("the socket is the page's own server, with TLS where the page has it", () => {
  expect(addressOf({ protocol: "http:", host: "127.0.0.1:9801" })).toBe("ws://127.0.0.1:9801/acp");
  expect(addressOf({ protocol: "https:", host: "agent.example" })).toBe("wss://agent.example/acp");
});

test("a prompt has its text and its pictures", () => {
  expect(blocksOf("look", [{ kind: "image", label: "a", mimeType: "image/png", data: "AA==" }, { kind: "problems", label: "p" }])).toEqual([
    { type: "text", text: "look" },
    { type: "image", mimeType: "image/png", data: "AA==" },
  ]);
});
