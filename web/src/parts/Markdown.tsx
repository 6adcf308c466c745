// Markdown that streams: finished blocks are rendered once, only the last one again. What a model writes is sanitised,
// and nothing in it can make a request: no images from elsewhere, no styles, no forms.
import DOMPurify from "dompurify";
import { Lexer, type Token, Tokenizer, marked } from "marked";
import type { ComponentChildren } from "preact";
import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Citation } from "../api";
import { copyText, short, sourceName } from "../format";

// Some of what marked does takes the square of a text's length, and nesting recurses: a model could freeze the tab.
const NESTING_MAX = 20;
const INLINE_CHARS_MAX = 10_000; // a longer paragraph is plain text
const SCANNED_CHARS_MAX = 1_000_000; // how far all marks of a text together look for their ends
class BoundedLexer extends Lexer {
  private depth = 0;
  private left = SCANNED_CHARS_MAX;
  override blockTokens(source: string, tokens: Token[] = [], clipped?: boolean): any {
    if (this.depth >= NESTING_MAX) return plain(source, tokens);
    this.depth++;
    try { return super.blockTokens(source, tokens, clipped); } finally { this.depth--; }
  }
  override inlineTokens(source: string, tokens: Token[] = []): Token[] {
    return source.length > INLINE_CHARS_MAX ? plain(source, tokens) : super.inlineTokens(source, tokens);
  }
  mark<Found extends Token>(source: string, find: () => Found | undefined): Found | undefined {
    if (!/^[*_~]/.test(source) || this.left < 0) return undefined;
    const found = find();
    this.left -= (found?.raw ?? source).length;
    return found;
  }
}
class BoundedTokenizer extends Tokenizer {
  override emStrong(...given: Parameters<Tokenizer["emStrong"]>) { return (this.lexer as BoundedLexer).mark(given[0], () => super.emStrong(...given)); }
  override del(...given: Parameters<Tokenizer["del"]>) { return (this.lexer as BoundedLexer).mark(given[0], () => super.del(...given)); }
}
function plain(source: string, tokens: Token[] = []): Token[] {
  tokens.push({ type: "text", raw: source, text: source, escaped: false });
  return tokens;
}
function lex(source: string): Token[] {
  try { return new BoundedLexer().lex(source); } catch { return plain(source); }
}
marked.use({ gfm: true, breaks: false, async: false });
marked.setOptions({ tokenizer: new BoundedTokenizer() });
const ALLOWED = ["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "a", "sup", "sub", "input", "kbd"];
const purify = DOMPurify(window);
purify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    const href = node.getAttribute("href") ?? "";
    if (!/^(https?:|mailto:|#cite-)/i.test(href)) node.removeAttribute("href");
    else if (!href.startsWith("#")) {
      node.setAttribute("target", "_blank");
      node.setAttribute("rel", "noopener noreferrer nofollow");
      node.setAttribute("title", href);
    }
  }
  if (node.tagName === "INPUT" && node.getAttribute("type") !== "checkbox") node.remove();
  if (node.tagName === "INPUT") node.setAttribute("disabled", "");
});

function toHtml(tokens: Token[]): string {
  const html = marked.parser(tokens as Parameters<typeof marked.parser>[0]);
  return purify.sanitize(html, { ALLOWED_TAGS: ALLOWED, ALLOWED_ATTR: ["href", "title", "class", "type", "checked", "disabled", "align", "start"], ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false });
}

const html = new Map<string, string>(); // finished blocks by their source
function rendered(raw: string, tokens: Token[], keep: boolean): string {
  const known = html.get(raw);
  if (known !== undefined) return known;
  const made = toHtml(tokens);
  if (keep) {
    if (html.size > 2_000) html.clear();
    html.set(raw, made);
  }
  return made;
}

const Block = memo(({ source, live }: { source: string; live: boolean }) => {
  const ref = useRef<HTMLDivElement>(null);
  // Before it is painted, so that nothing jumps; colours come when the block is finished.
  useLayoutEffect(() => { if (ref.current) void dress(ref.current, !live); }, [source, live]);
  return <div class="md-block" ref={ref} dir="auto" dangerouslySetInnerHTML={{ __html: source }} />;
});

interface Blocks { text: string; done: { raw: string; html: string }[]; rest: string }

export function Markdown({ text, live, citations }: { text: string; live: boolean; citations?: Citation[] }) {
  const state = useRef<Blocks>({ text: "", done: [], rest: "" });
  const blocks = useMemo(() => {
    const known = state.current;
    const marks = citations?.length ? withMarks(text, citations) : text;
    if (!marks.startsWith(known.text)) { known.done = []; known.rest = marks; }
    else known.rest += marks.slice(known.text.length);
    known.text = marks;
    const tokens = lex(known.rest);
    const last = live ? tokens.length - 1 : tokens.length;
    for (const token of tokens.slice(0, Math.max(0, last))) {
      known.done.push({ raw: token.raw, html: token.type === "space" ? "" : rendered(token.raw, [token], true) });
      known.rest = known.rest.slice(token.raw.length);
    }
    const tail = live ? tokens[tokens.length - 1] : undefined;
    return { done: known.done.filter((block) => block.html), tail: tail ? rendered(tail.raw, [tail], false) : "" };
  }, [text, live, citations?.length]);
  return (
    <Cited citations={citations ?? []}>
      {blocks.done.map((block, index) => <Block key={index} source={block.html} live={false} />)}
      {blocks.tail && <Block key={blocks.done.length} source={blocks.tail} live />}
    </Cited>
  );
}

const numbered = (citations: Citation[], number: number): Citation | undefined => citations.find((one) => one.number === number) ?? (citations[number - 1]?.number ? undefined : citations[number - 1]);

/** `[1]` becomes a link to the source with this number, if there is one. */
function withMarks(text: string, citations: Citation[]): string {
  return text.replace(/\[(\d{1,3})\](?![(:\]])/g, (mark, number: string) => (numbered(citations, Number(number)) ? `<sup>[${number}](#cite-${number})</sup>` : mark));
}

/** Text whose marks show their source: by pointing at them, by focus, and by a click. */
function Cited({ citations, children }: { citations: Citation[]; children: ComponentChildren }) {
  const [card, setCard] = useState<{ source: Citation; style: Record<string, string> } | null>(null);
  const show = (event: Event) => {
    const mark = (event.target as Element).closest?.('a[href^="#cite-"]');
    const source = mark && numbered(citations, Number(mark.getAttribute("href")!.slice(6)));
    if (!mark || !source) { if (event.type !== "click") setCard(null); return; }
    if (event.type === "click") event.preventDefault();
    // On the window, not in the text: a card that lengthens the text scrolls the mark away from the pointer, and back.
    const at = mark.getBoundingClientRect(), left = `${Math.max(8, Math.min(at.left, innerWidth - 328))}px`;
    setCard({ source, style: at.bottom < innerHeight / 2 ? { left, top: `${at.bottom + 4}px` } : { left, bottom: `${innerHeight - at.top + 4}px` } });
  };
  const hide = () => setCard(null);
  useEffect(() => {
    if (card) addEventListener("scroll", hide, true);
    return () => removeEventListener("scroll", hide, true);
  }, [card]);
  const events = citations.length ? { onMouseOver: show, onFocusIn: show, onClick: show, onMouseLeave: hide, onFocusOut: hide, onKeyDown: (event: KeyboardEvent) => { if (event.key === "Escape" && card) { event.stopPropagation(); hide(); } } } : {};
  return (
    <div class="md" {...events}>
      {children}
      {card && (
        <div class="cite-card" role="tooltip" style={card.style}>
          <b class="cut">{sourceName(card.source)}</b>
          {card.source.quote && <blockquote dir="auto">{short(card.source.quote, 400)}</blockquote>}
          {card.source.url && <span class="soft cut">{card.source.url}</span>}
        </div>
      )}
    </div>
  );
}

/** Adds a copy button and colours to code. */
async function dress(element: HTMLElement, withColours: boolean): Promise<void> {
  for (const code of element.querySelectorAll<HTMLElement>("pre > code")) {
    const pre = code.parentElement as HTMLElement;
    const language = /language-([\w+#-]+)/.exec(code.className)?.[1] ?? "";
    if (!pre.querySelector(".code-head")) {
      const head = document.createElement("div");
      head.className = "code-head";
      const name = document.createElement("span");
      name.textContent = language || "text";
      const button = document.createElement("button");
      button.className = "plain tiny";
      button.type = "button";
      button.textContent = "Copy";
      button.onclick = async () => {
        button.textContent = (await copyText(code.textContent ?? "")) ? "Copied" : "Not copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1_500);
      };
      head.append(name, button);
      pre.prepend(head);
    }
    if (withColours && language && (code.textContent ?? "").length < 50_000) {
      const coloured = await highlighted(code.textContent ?? "", language);
      if (coloured && code.isConnected) code.innerHTML = purify.sanitize(coloured, { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"] });
    }
  }
}

const HIGHLIGHT_S = 3;
let highlighter: Worker | undefined;
let turn: Promise<unknown> = Promise.resolve(); // one block at a time, so that each has all of its time

/** Colours code in a worker: highlight.js needs the square of the length for some texts. What takes too long stays plain. */
function highlighted(code: string, language: string): Promise<string | null> {
  const made = turn.then(async () => {
    highlighter ??= new Worker((await import("./highlight")).address, { type: "module" });
    const worker = highlighter;
    return await new Promise<string | null>((resolve) => {
      const end = () => { worker.terminate(); highlighter = undefined; resolve(null); };
      const timer = setTimeout(end, HIGHLIGHT_S * 1_000);
      worker.onmessage = ({ data }: MessageEvent<string | null>) => { clearTimeout(timer); resolve(data); };
      worker.onerror = () => { clearTimeout(timer); end(); };
      worker.postMessage([code, language]);
    });
  });
  turn = made.catch(() => null);
  return made;
}
