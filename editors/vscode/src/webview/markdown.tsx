/**
 * Markdown of the agent as elements. The only file that sets HTML: made by marked, with raw HTML shown as the text it
 * is, and cleaned by DOMPurify down to the few elements and attributes that marked makes.
 *
 * Links have no `href`: VS Code would follow it by itself. Their address stands in `data-href` and is told to the
 * extension. Pictures are never loaded: their description is a link.
 */
import DOMPurify from "dompurify";
import { Marked, type Token, type Tokens } from "marked";
import { memo } from "preact/compat";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { JSX } from "preact";
import { type Block, BlockSplitter } from "./blocks";
import { useView, type View } from "./context";
import { useHighlighter } from "./highlighter";
import { Icon, IconButton } from "./icons";
import { safeHref } from "./links";

const ALLOWED = {
  ALLOWED_TAGS: [
    ..."p br hr h1 h2 h3 h4 h5 h6 strong em del code pre blockquote ul ol li table thead tbody tr th td a span div button".split(" "),
  ],
  ALLOWED_ATTR: ["data-href", "data-copy", "title", "align", "start", "class", "role", "tabindex", "type", "aria-label"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};

function escape(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}

function linkTo(address: string, label: string): string {
  const href = safeHref(address);
  if (href === null) return label;
  return `<a role="link" tabindex="0" data-href="${escape(href)}" title="${escape(href)}">${label}</a>`;
}

/** What is drawn is the words of a link, which leads where the agent says. */
let isInLink = false;

const marked = new Marked({
  gfm: true,
  renderer: {
    html({ text, block }: Tokens.HTML | Tokens.Tag) {
      return block ? `<p class="raw">${escape(text.trimEnd())}</p>` : escape(text);
    },
    link({ href, tokens }: Tokens.Link) {
      isInLink = true;
      try {
        return linkTo(href, this.parser.parseInline(tokens));
      } finally {
        isInLink = false;
      }
    },
    image({ href, text }: Tokens.Image) {
      return linkTo(href, `<span class="picture">${escape(text === "" ? href : text)}</span>`);
    },
    checkbox({ checked }: Tokens.Checkbox) {
      return `<span class="box" aria-label="${checked ? "done" : "to do"}">${checked ? "☑" : "☐"}</span> `;
    },
    codespan({ text }: Tokens.Codespan) {
      const code = `<code>${escape(text)}</code>`;
      return !isInLink && new RegExp(`^(?:${PLACE.source})$`, "u").test(text) ? linkTo(text.startsWith("/") ? text : `./${text}`, code) : code; // Else the file would be taken for a scheme.
    },
    // Code within a list or a quotation; code that stands by itself is a `Code`.
    code(token: Tokens.Code) {
      const code = coloured(token.text, languageOf(token)) ?? escape(token.text);
      return `<div class="code"><button type="button" class="copy" data-copy="" title="Copy">Copy</button><pre><code>${code}</code></pre></div>`;
    },
    table(token: Tokens.Table) {
      const row = (cells: Tokens.TableCell[]): string => `<tr>${cells.map((cell) => this.tablecell(cell)).join("")}</tr>`;
      return `<div class="table"><table><thead>${row(token.header)}</thead><tbody>${token.rows.map(row).join("")}</tbody></table></div>`;
    },
  },
});

/** A longer code is shown without colours: they would take too long. */
const MOST_COLOURED = 40_000;

/** The clean HTML of code with its colours, if there are any for it. */
function coloured(text: string, language: string): string | null {
  const html = language === "" || text.length > MOST_COLOURED ? null : (window.acpHighlight?.(text, language) ?? null);
  return html === null ? null : DOMPurify.sanitize(html, { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"] });
}

/** The clean HTML of one token of Markdown. */
export function htmlOf(token: Token): string {
  let html: string;
  try {
    html = marked.parser([token]);
  } catch {
    html = `<p class="raw">${escape(token.raw)}</p>`;
  }
  return DOMPurify.sanitize(html, ALLOWED);
}

const Html = memo(
  ({ block }: { readonly block: Block; readonly coloured: boolean }) => <div class="block" dangerouslySetInnerHTML={{ __html: htmlOf(block.token) }} />,
  (before, after) => before.block.raw === after.block.raw && before.block.links === after.block.links && before.coloured === after.coloured,
);

const Lines = memo(({ text }: { readonly text: string }) => <span class="lines">{withPlaces(text)}</span>);

/** A file and a line of it, as compilers, tests and searches write them. */
const PLACE = /(?<![\w/.:@-])((?:[\w@.-]*\/)*[\w@-][\w@.-]*\.[A-Za-z]\w{0,9}:[1-9]\d{0,6}(?::\d+)?)(?![\w/])/gu;

/** The text with its places as links. */
export function withPlaces(text: string): readonly (string | JSX.Element)[] {
  // Each second part is a place.
  return text.split(PLACE).map((part, index) =>
    index % 2 === 0 ? (
      part
    ) : (
      <a key={index} role="link" tabIndex={0} data-href={part} title={part}>
        {part}
      </a>
    ),
  );
}

/** So many lines are one element, which is not touched any more when it is full. */
const RUN = 100;

export function runsOfLines(text: string): readonly string[] {
  const lines = text.split("\n");
  const runs: string[] = [];
  for (let start = 0; start < lines.length; start += RUN) runs.push(lines.slice(start, start + RUN).join("\n"));
  return runs;
}

interface CodeProps {
  readonly text: string;
  readonly language: string;
  /** More of it is coming: it gets its colours when it is whole. */
  readonly live?: boolean;
}

export const Code = memo(({ text, language, live = false }: CodeProps): JSX.Element => {
  const { post, inEditor } = useView();
  const [copied, setCopied] = useState(false);
  const timer = useRef<ReturnType<typeof setTimeout>>();
  useEffect(
    () => () => {
      clearTimeout(timer.current);
    },
    [],
  );
  const highlight = useHighlighter(language !== "" && !live);
  const html = useMemo(() => (live ? null : coloured(text, language)), [text, language, live, highlight]);
  const copy = (): void => {
    void copyText(text).then(() => {
      setCopied(true);
      clearTimeout(timer.current);
      timer.current = setTimeout(setCopied, 1500, false);
    });
  };
  return (
    <div class="code">
      {language !== "" && <span class="language">{language}</span>}
      <div class="code-actions">
        {inEditor && language !== "" && !live && (
          <>
            <IconButton
              icon="insert"
              label="Insert the code at the cursor"
              title="Insert at the cursor"
              act={() => {
                post({ type: "insert", text });
              }}
            />
            <IconButton
              icon="apply"
              label="Let the agent apply the code"
              title="Apply: the agent puts it where it belongs"
              act={() => {
                post({ type: "send", text: `Apply this to the files it belongs to:\n\n\`\`\`\`${language}\n${text}\n\`\`\`\``, attachments: [] });
              }}
            />
          </>
        )}
        <button type="button" class="copy" onClick={copy} title="Copy" aria-label="Copy the code">
          <Icon name={copied ? "check" : "copy"} />
        </button>
      </div>
      <pre tabIndex={0} aria-label={language === "" ? "Code" : `Code: ${language}`}>
        {html === null ? (
          <code>
            {runsOfLines(text).map((run, index) => (
              <Lines key={index} text={run} />
            ))}
          </code>
        ) : (
          <code dangerouslySetInnerHTML={{ __html: html }} />
        )}
      </pre>
    </div>
  );
});

export async function copyText(text: string): Promise<void> {
  await navigator.clipboard.writeText(text);
}

/** Opens what a link that was clicked leads to; false if it was none. */
export function followLink(target: EventTarget | null, post: View["post"]): boolean {
  const href = (target instanceof Element ? target : null)?.closest("[data-href]")?.getAttribute("data-href") ?? undefined;
  if (href !== undefined) post({ type: "openLink", href });
  return href !== undefined;
}

interface MarkdownProps {
  readonly text: string;
  /** More of it is coming. */
  readonly live?: boolean;
}

/** `text` as elements, drawn again only where it changed. */
export const Markdown = memo(({ text, live = false }: MarkdownProps) => {
  const { post } = useView();
  const highlight = useHighlighter(text.includes("```"));
  const splitter = useRef<BlockSplitter>();
  splitter.current ??= new BlockSplitter();
  const follow = (target: EventTarget | null): boolean => followLink(target, post);
  const click = (event: MouseEvent): void => {
    if (follow(event.target)) {
      event.preventDefault();
      return;
    }
    const button = event.target instanceof Element ? event.target.closest("[data-copy]") : null;
    const code = button?.parentElement?.querySelector("code")?.textContent;
    if (code !== undefined) void copyText(code);
  };
  const key = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && follow(event.target)) event.preventDefault();
  };
  return (
    <div class="markdown" onClick={click} onKeyDown={key}>
      {splitter.current.update(text, live).map((block, index, blocks) =>
        block.token.type === "code" ? (
          <Code
            key={index}
            text={(block.token as Tokens.Code).text}
            language={languageOf(block.token as Tokens.Code)}
            live={live && index === blocks.length - 1}
          />
        ) : (
          <Html key={index} block={block} coloured={highlight !== undefined} />
        ),
      )}
    </div>
  );
});

function languageOf(token: Tokens.Code): string {
  return /^[\w+#.-]*/.exec(token.lang ?? "")?.[0] ?? "";
}
