import type { ContentBlock } from "@agentclientprotocol/sdk";
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
