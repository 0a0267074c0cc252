import type { ContentBlock } from "@agentclientprotocol/sdk";
import type { Attachment, ShownAttachment } from "./messages.js";
import { labelOfUri } from "./uris.js";

/** A content block as Markdown; images that can be shown are drawn by their callers. */
export function markdownOf(block: ContentBlock): string {
  switch (block.type) {
    case "text":
      return block.text;
    case "resource_link":
      return `[${block.title ?? block.name}](${block.uri})`;
    case "resource":
      return "text" in block.resource ? block.resource.text : `[${labelOfUri(block.resource.uri)}](${block.resource.uri})`;
    case "audio":
      return "_(audio, which is not played here)_";
    case "image":
      return "_(an image)_";
  }
}

/** What was attached to a message, as it can be sent again; nothing if it cannot. */
export function sentAgain({ label, uri, preview }: ShownAttachment): readonly Attachment[] {
  const image = /^data:([^;,]+);base64,(.*)$/su.exec(preview ?? "");
  if (image?.[1] !== undefined && image[2] !== undefined) {
    return [{ kind: "image", label, mimeType: image[1], data: image[2] }];
  }
  if (uri !== undefined && pageOf(uri) !== undefined) {
    return [{ kind: "page", uri, label }];
  }
  return uri?.startsWith("file:") === true ? [{ kind: "file", uri, label }] : [];
}

/** The address of a web page, if the text is one, without what ends a sentence. */
export function pageOf(text: string): string | undefined {
  return /^https?:\/\/[^\s/]+\S*$/iu.test(text) ? text.replace(/[)\]}>.,;:!?'"]+$/u, "") : undefined;
}

/** Links to the web pages that a prompt mentions (`@https://…`) or has attached. */
export function pageLinks(text: string, attachments: readonly Attachment[]): ContentBlock[] {
  const attached = attachments.flatMap((attachment) => (attachment.kind === "page" ? [attachment.uri] : []));
  const typed = [...text.matchAll(/(?:^|[\s([{"'])@(\S+)/gu)].flatMap(([, word = ""]) => pageOf(word) ?? []);
  return [...new Set([...attached, ...typed])].map((uri) => ({ type: "resource_link", uri, name: uri }));
}
