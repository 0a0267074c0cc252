import { StringDecoder } from "node:string_decoder";

/**
 * The output of a terminal: the last `limit` bytes, cut at the beginning and at a character boundary, as required by
 * ACP's `outputByteLimit` (`terminal/create`).
 */
export class OutputBuffer {
  private chunks: Buffer[] = [];
  private bytes = 0;
  private dropped = false;

  constructor(private readonly limit: number) {}

  get truncated(): boolean {
    return this.dropped;
  }

  write(chunk: Buffer): void {
    this.chunks.push(chunk);
    this.bytes += chunk.length;
    // Joined and cut only at twice the limit: each byte is copied a limited number of times.
    if (this.bytes > 2 * this.limit + 65_536) {
      this.cut();
    }
  }

  /** What is kept, as text. Bytes that are not UTF-8 become U+FFFD; an unfinished character at the end waits. */
  text(): string {
    this.cut();
    return new StringDecoder("utf8").write(this.joined());
  }

  /** The last `bytes` of it at most, without joining the rest. */
  tail(bytes: number): string {
    const last: Buffer[] = [];
    let length = 0;
    for (let index = this.chunks.length - 1; index >= 0 && length < bytes; index -= 1) {
      const chunk = this.chunks[index] ?? Buffer.alloc(0);
      last.unshift(chunk);
      length += chunk.length;
    }
    const joined = Buffer.concat(last);
    return new StringDecoder("utf8").write(joined.subarray(startOfCharacter(joined, Math.max(0, joined.length - Math.min(bytes, this.limit)))));
  }

  private joined(): Buffer {
    const first = this.chunks.length === 1 ? this.chunks[0] : undefined;
    const whole = first ?? Buffer.concat(this.chunks);
    this.chunks = [whole];
    return whole;
  }

  private cut(): void {
    if (this.bytes <= this.limit) {
      return;
    }
    const whole = this.joined();
    const start = startOfCharacter(whole, whole.length - this.limit);
    this.dropped = true;
    this.chunks = [Buffer.from(whole.subarray(start))];
    this.bytes = whole.length - start;
  }
}

/** The first position from `start` at which a UTF-8 character begins: a continuation byte is 10xxxxxx. */
function startOfCharacter(bytes: Buffer, start: number): number {
  let place = start;
  while (place < bytes.length && ((bytes[place] ?? 0) & 0xc0) === 0x80) {
    place += 1;
  }
  return place;
}
