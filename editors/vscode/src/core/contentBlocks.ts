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
  return uri?.startsWith("file:") === true ? [{ kind: "file", uri, label }] : [];
}
