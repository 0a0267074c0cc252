/**
 * Cuts Markdown into blocks while it streams, so that a delta costs one block rather than the message.
 *
 * A block is settled once the one after it has a whole line: nothing that follows can change it then. Unsettled text
 * is lexed again with the next delta, and is kept small: a paragraph or a list that grows without end is cut at a
 * line. No HTML is made here.
 */
import { Lexer, type Token } from "marked";
import { isHard } from "./hard";

/** Definitions (`[name]: address`) by name, as the lexer keeps them. */
type Links = Lexer["tokens"]["links"];

export interface Block {
  /** The Markdown of this block. */
  readonly raw: string;
  readonly token: Token;
  /** The definitions it was read with; `NO_LINKS` if it cannot use any. */
  readonly links: Links;
}

const NO_LINKS: Links = {};
/** A block that is longer than this while it streams is cut, if it can be. */
const LONG = 6_000;
/** A block that cannot be cut is lexed again only after it has grown by this fraction of its length. */
const GROWTH = 0.05;

export class BlockSplitter {
  private settled: readonly Block[] = [];
  private open: readonly Block[] = [];
  private text = "";
  /** Start of the part that is lexed again. */
  private tail = 0;
  private links: Links = NO_LINKS;

  /** The blocks of `text`. `live` says that more is coming: then the end of a very long table may be a little behind. */
  update(text: string, live: boolean): readonly Block[] {
    const clean = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
    if (!clean.startsWith(this.text)) {
      this.settled = [];
      this.open = [];
      this.text = "";
      this.tail = 0;
      this.links = NO_LINKS;
    }
    if (clean.length === this.text.length || (live && this.mayWait(clean))) return this.blocks();
    this.text = clean;
    this.lexTail();
    for (let cut = this.cut(); cut !== undefined; cut = this.cut()) {
      this.settle(this.lex(this.text.slice(this.tail, this.tail + cut)), cut);
      this.lexTail();
    }
    return this.blocks();
  }

  private blocks(): readonly Block[] {
    return [...this.settled, ...this.open];
  }

  private mayWait(text: string): boolean {
    const long = this.text.length - this.tail;
    return long > 2 * LONG && this.open.at(-1)?.token.type !== "code" && text.length - this.text.length < long * GROWTH;
  }

  private lexTail(): void {
    const blocks = this.lex(this.text.slice(this.tail));
    const last = blocks.reduce((found, block, index) => (shows(block) ? index : found), -1);
    const isSettled = last > 0 && blocks[last]?.raw.includes("\n") === true;
    const raw = blocks.slice(0, isSettled ? last : 0).reduce((text, block) => text + block.raw, "");
    // The lexer promises that the blocks add up to the text; if they ever do not, nothing is settled.
    const end = this.text.startsWith(raw, this.tail) ? raw.length : 0;
    if (end > 0) this.settle(blocks.slice(0, last), end);
    this.open = blocks.slice(end > 0 ? last : 0).filter(shows);
  }

  private settle(blocks: readonly Block[], length: number): void {
    this.settled = [...this.settled, ...blocks.filter(shows)];
    this.tail += length;
  }

  /** Where the open block is cut so that both parts read as one; absent if it is short or must stay whole. */
  private cut(): number | undefined {
    const [block] = this.open;
    if (!block || this.open.length > 1 || !this.text.startsWith(block.raw, this.tail) || block.raw.length <= LONG) return undefined;
    switch (block.token.type) {
      case "list":
        return lastEnd(block.raw, /\n(?=(?:[-*+]|\d{1,9}[.)]) )/g);
      case "paragraph":
      case "text":
        return lastEnd(block.raw, /\n(?!\n)|(?<=[.!?]) (?=\S)/g) ?? LONG;
      default:
        // A table or a quotation must stay whole; code is drawn in parts by its caller.
        return undefined;
    }
  }

  private lex(source: string): readonly Block[] {
    return this.tokens(source).map((token) => {
      return { raw: token.raw, token, links: usesLinks(token.raw) ? this.links : NO_LINKS };
    });
  }

  private tokens(source: string): readonly Token[] {
    if (isHard(source)) return [asText(source)];
    const lexer = new Lexer();
    Object.assign(lexer.tokens.links, this.links);
    let tokens: readonly Token[];
    try {
      tokens = lexer.lex(source);
    } catch {
      // Plain text is better than no conversation at all.
      return [asText(source)];
    }
    if (Object.keys(lexer.tokens.links).length > Object.keys(this.links).length) {
      this.links = { ...lexer.tokens.links };
      this.settled = this.settled.flatMap((block) => (usesLinks(block.raw) ? this.lex(block.raw) : [block]));
    }
    return tokens;
  }
}

function shows(block: Block): boolean {
  return block.token.type !== "space" && block.token.type !== "def";
}

/** Whether there is something in brackets that is not a link with its address. */
function usesLinks(raw: string): boolean {
  return /\[[^[\]]+\](?!\()/.test(raw);
}

/** The source as a paragraph of plain text. */
function asText(source: string): Token {
  return { type: "paragraph", raw: source, text: source, tokens: [{ type: "text", raw: source, text: source, escaped: false }] };
}

function lastEnd(raw: string, pattern: RegExp): number | undefined {
  let end: number | undefined;
  for (const match of raw.matchAll(pattern)) {
    const position = match.index + match[0].length;
    if (position < raw.length) end = position;
  }
  return end;
}
