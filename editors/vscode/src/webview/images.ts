/** Pasted pictures as attachments, or the reason why one cannot be attached. */
import type { Attachment } from "../core/messages";

const MOST_BYTES = 5 * 1024 * 1024;
const TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

export interface Pasted {
  readonly attachments: readonly Attachment[];
  /** Why something was left out; empty if nothing was. */
  readonly refused: string;
}

/** `files` are read completely. `number` is that of the first picture, for its label. */
export async function readImages(files: readonly File[], accepted: boolean, number: number): Promise<Pasted> {
  if (!accepted) return { attachments: [], refused: "This agent does not accept images." };
  const attachments: Attachment[] = [];
  const refused = new Set<string>();
  for (const file of files) {
    if (!TYPES.includes(file.type)) {
      refused.add(`An image of type ${file.type} was left out: PNG, JPEG, GIF and WebP can be sent.`);
    } else if (file.size > MOST_BYTES) {
      const size = (file.size / 1024 / 1024).toFixed(1);
      refused.add(`An image of ${size} MB was left out: the maximum is ${MOST_BYTES / 1024 / 1024} MB.`);
    } else {
      const label = `Picture ${number + attachments.length}`;
      attachments.push({ kind: "image", label, mimeType: file.type, data: await base64(file) });
    }
  }
  return { attachments, refused: [...refused].join(" ") };
}

function base64(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      const url = typeof reader.result === "string" ? reader.result : "";
      resolve(url.slice(url.indexOf(",") + 1));
    };
    reader.onerror = () => {
      reject(reader.error ?? new Error("The picture could not be read"));
    };
    reader.readAsDataURL(file);
  });
}
