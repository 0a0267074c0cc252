import type { JSX } from "preact";

/** A picture of the agent; what is not one of the four formats is named instead. */
export function Picture({ mimeType, data }: { readonly mimeType: string; readonly data: string }): JSX.Element {
  if (!/^image\/(png|jpeg|gif|webp)$/.test(mimeType)) return <p class="quiet">A picture ({mimeType}) that cannot be shown</p>;
  return <img class="picture" src={`data:${mimeType};base64,${data}`} alt="Picture from the agent" />;
}
