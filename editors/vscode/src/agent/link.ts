/** The interface between this extension and the connection to an agent; loads no code of the SDK. */
import type * as acp from "@agentclientprotocol/sdk";
import type { Problem } from "../core/messages.js";

/** What the agent says and asks in any client. Each may throw a `RequestFailure`; other errors become internal errors. */
export interface ConversationSide {
  update(notification: acp.SessionNotification): void;
  requestPermission(params: acp.RequestPermissionRequest, signal: AbortSignal): Promise<acp.RequestPermissionResponse>;
  elicit(params: acp.CreateElicitationRequest, signal: AbortSignal): Promise<acp.CreateElicitationResponse>;
  elicitationComplete(elicitationId: string): void;
}

/** Requests from the agent to the editor as well. */
export interface ClientSide extends ConversationSide {
  readTextFile(params: acp.ReadTextFileRequest): Promise<acp.ReadTextFileResponse>;
  writeTextFile(params: acp.WriteTextFileRequest): Promise<acp.WriteTextFileResponse>;
  createTerminal(params: acp.CreateTerminalRequest): Promise<acp.CreateTerminalResponse>;
  terminalOutput(params: acp.TerminalOutputRequest): acp.TerminalOutputResponse;
  waitForTerminalExit(params: acp.WaitForTerminalExitRequest, signal: AbortSignal): Promise<acp.WaitForTerminalExitResponse>;
  killTerminal(params: acp.KillTerminalRequest): acp.KillTerminalResponse;
  releaseTerminal(params: acp.ReleaseTerminalRequest): acp.ReleaseTerminalResponse;
  /** `_lsp/*`: the language servers of the editor. */
  languageServer(method: string, params: unknown): Promise<unknown>;
}

/** An error answer with a code of ACP. */
export class RequestFailure extends Error {
  override readonly name = "RequestFailure";

  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message);
  }
}

export const INVALID_PARAMS = -32602;
export const INTERNAL_ERROR = -32603;
export const RESOURCE_NOT_FOUND = -32002;
export const AUTH_REQUIRED = -32000;
export const REQUEST_CANCELLED = -32800;

export interface Command {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

export type OnWire = (direction: "sent" | "received", message: unknown) => void;

export interface ConnectOptions extends Command {
  readonly client: ClientSide;
  readonly capabilities: acp.ClientCapabilities;
  readonly version: string;
  readonly lspMethods: readonly string[];
  /** Milliseconds for the agent to answer `initialize`. */
  readonly timeout: number;
  readonly onWire: OnWire;
  readonly onStderr: (text: string) => void;
}

export interface Ended {
  readonly code: number | null;
  readonly signal: string | null;
  /** The last lines that the agent wrote to stderr. */
  readonly stderr: string;
  /** Whether this side ended it. */
  readonly wanted: boolean;
}

/** A running agent that has answered `initialize`. */
export interface AgentLink {
  readonly initialized: acp.InitializeResponse;
  readonly pid: number | undefined;
  request<Method extends acp.AgentRequestMethod>(
    method: Method,
    params: acp.AgentRequestParamsByMethod[Method],
    signal?: AbortSignal,
  ): Promise<acp.AgentRequestResponsesByMethod[Method]>;
  /** A request that is no part of the protocol itself. */
  extension(method: string, params: unknown): Promise<unknown>;
  notify(method: string, params: unknown): void;
  readonly ended: Promise<Ended>;
  /** Ends the agent by closing its stdin; kills it if it does not exit. */
  close(): Promise<void>;
}

export type Connect = (options: ConnectOptions) => Promise<AgentLink>;

/** By name: the connection is a separate bundle, with its own class. */
export function isStartFailure(error: unknown): error is StartFailure {
  return error instanceof Error && error.name === "StartFailure";
}

/** The agent could not be started, or did not answer as an ACP agent does. The message is for a user. */
export class StartFailure extends Error {
  override readonly name = "StartFailure";

  constructor(
    message: string,
    readonly stderr: string,
  ) {
    super(message);
  }
}

export function isUnstartable(error: unknown): error is Unstartable {
  return error instanceof Unstartable;
}

/** There is no agent, and this is what the user can do; `null`: nothing. */
export class Unstartable extends Error {
  override readonly name = "Unstartable";

  constructor(readonly problem: Problem | null, message = problem?.title ?? "") {
    super(message);
  }
}
