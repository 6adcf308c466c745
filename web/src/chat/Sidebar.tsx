// The list of conversations and the way to the other screens. Only the rows that can be seen are in the page.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Info } from "../api";
import { api, enc } from "../api";
import { dayOf } from "../format";
import { Dialog } from "../parts/common";
import { conversations, conversationsMore, go, link, listError, loadConversations, menuOpen, paletteOpen, place, screens, search } from "../state";

const PHONE = matchMedia("(max-width: 700px)");
type Row = { day: string } | { info: Info };

function rows(infos: Info[]): Row[] {
  const now = Date.now() / 1000;
  const made: Row[] = [];
  let day = "";
  for (const info of infos) {
    const its = dayOf(info.updated_at ?? 0, now);
    if (its !== day) made.push({ day: (day = its) });
    made.push({ info });
  }
  return made;
}

export function Sidebar() {
  const list = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [menu, setMenu] = useState<Info | null>(null);
  useEffect(() => {
    void loadConversations();
    const measure = () => setHeight(list.current?.clientHeight ?? 600);
    measure();
    addEventListener("resize", measure);
    const timer = setInterval(() => { if (!document.hidden) void loadConversations(); }, 15_000);
    return () => { removeEventListener("resize", measure); clearInterval(timer); };
  }, []);
  useEffect(() => { const timer = setTimeout(() => void loadConversations(), 200); return () => clearTimeout(timer); }, [search.value]);
  const all = rows(conversations.value);
  const ROW = PHONE.matches ? 44 : 34; // the height of a row in the style sheet
  const first = Math.max(0, Math.floor(top / ROW) - 10);
  const shown = all.slice(first, first + Math.ceil(height / ROW) + 20);
  const here = place.value;
  return (
    <aside class={`side ${menuOpen.value ? "open" : ""}`} aria-label="Conversations and screens">
      <header>
        <div class="row"><a class="brand grow" href="#/chat"><span class="ring" />Rondel</a>
          <button class="plain" aria-label="Search everything (Ctrl K)" onClick={() => { paletteOpen.value = true; }}>⌕</button></div>
        <button onClick={() => go("chat")}>New conversation <kbd>Alt N</kbd></button>
        <input type="search" placeholder="Search" aria-label="Search conversations" value={search.value} onInput={(event) => { search.value = event.currentTarget.value; }} />
      </header>
      <div class="list" ref={list} onScroll={(event) => {
        const box = event.currentTarget;
        setTop(box.scrollTop);
        if (conversationsMore.value && box.scrollHeight - box.scrollTop - box.clientHeight < 400) void loadConversations(true);
      }}>
        {listError.value && <div class="note error">{listError.value}</div>}
        {!all.length && !listError.value && <div class="empty small">{search.value ? "Nothing found." : "Your conversations appear here."}</div>}
        <div style={{ height: `${first * ROW}px` }} />
        {shown.map((row) => "day" in row ? <div class="day" key={row.day}>{row.day}</div> : (
          <div class="item-row" key={row.info.id}><a class="item" href={link("chat", row.info.id)} aria-current={here.screen === "chat" && here.id === row.info.id ? "page" : undefined}
            onContextMenu={(event) => { event.preventDefault(); setMenu(row.info); }}
            onKeyDown={(event) => { if (event.key === "F2" || event.key === "Delete") { event.preventDefault(); setMenu(row.info); } }}>
            <span class="cut grow" dir="auto">{row.info.title || "(empty)"}</span>
            <State state={row.info.state ?? ""} />
          </a>
          {here.id === row.info.id && <button class="plain tiny" aria-label={`Rename or delete ${row.info.title ?? ""}`} onClick={() => setMenu(row.info)}>⋯</button>}</div>
        ))}
        <div style={{ height: `${Math.max(0, all.length - first - shown.length) * ROW}px` }} />
      </div>
      <nav aria-label="Screens">
        {screens().map(([screen, name]) => <a href={`#/${screen}`} aria-current={here.screen === screen ? "page" : undefined}>{name}</a>)}
      </nav>
      {menu && <ConversationMenu info={menu} onClose={() => setMenu(null)} />}
    </aside>
  );
}

function State({ state }: { state: string }) {
  if (state === "working") return <span class="dot working" role="img" aria-label="working" title="working" />;
  if (state === "waiting") return <span class="dot waiting" role="img" aria-label="waiting for you" title="waiting for you" />;
  if (state === "failed" || state === "interrupted") return <span class="dot failed" role="img" aria-label={state} title={state} />;
  return null;
}

function ConversationMenu({ info, onClose }: { info: Info; onClose: () => void }) {
  const [title, setTitle] = useState(info.title ?? "");
  const [sure, setSure] = useState(false);
  const [error, setError] = useState("");
  const run = async (method: string, body?: unknown) => {
    try {
      await api(method, `/api/conversations/${enc(info.id)}`, body);
      if (method === "DELETE") {
        conversations.value = conversations.value.filter((one) => one.id !== info.id);
        if (place.value.id === info.id) go("chat");
      }
      await loadConversations();
      onClose();
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  return (
    <Dialog label="Conversation" onClose={onClose}>
      <form class="stack card" onSubmit={(event) => { event.preventDefault(); void run("PATCH", { title }); }}>
        <label class="stack">Title<input value={title} maxLength={80} onInput={(event) => setTitle(event.currentTarget.value)} dir="auto" /></label>
        {error && <div class="note error" role="alert">{error}</div>}
        <div class="row wrap">
          <button class="primary" type="submit">Rename</button>
          <a href={`/api/conversations/${enc(info.id)}/export?format=markdown`} download>Markdown</a>
          <a href={`/api/conversations/${enc(info.id)}/export?format=json`} download>JSON</a>
          <span class="grow" />
          {sure ? <button type="button" class="danger" onClick={() => void run("DELETE")}>Delete for ever</button> : <button type="button" class="danger" onClick={() => setSure(true)}>Delete…</button>}
          <button type="button" onClick={onClose}>Cancel</button>
        </div>
      </form>
    </Dialog>
  );
}
