// Knowledge bases: what is in them, how the last sync went, and a search to see what agents would find.
import { useState } from "preact/hooks";
import { enc, get, post } from "../api";
import { count, moment, short } from "../format";
import { Empty, Failed, Loading, Screen, Table, useLoaded } from "../parts/common";
import { useRefresh, WorkView, type Work } from "../parts/work";
import { go } from "../state";

interface Download { name: string; title: string; size: string; licence: string }
interface Base { name: string; embedder: string; documents: number; chunks: number; vectors: number; problems: number; synced_at: number; sources: string[]; download?: Download | null; sync?: Work | null }
interface Passage { text: string; title?: string; where?: string; headings?: string; line?: number; page?: number; score?: number }
interface Document { path: string; title?: string; problem?: string; chunks?: number; tags?: string[] }

export function Knowledge({ id }: { id: string }) {
  const loaded = useLoaded<Base[]>((signal) => get("/api/knowledge", signal), []);
  const [error, setError] = useState("");
  useRefresh(loaded.reload, !!loaded.data?.some((base) => base.sync?.state === "running"));
  const run = async (path: string, body: unknown) => {
    try { await post(path, body); setError(""); } catch (failure) { setError((failure as Error).message); }
    loaded.reload();
  };
  return (
    <Screen title="Knowledge" actions={id && <a href="#/knowledge">All bases</a>}>
      {error && <div class="note error" role="alert">{error}</div>}
      <Loading loaded={loaded}>{(bases) => {
        if (!bases.length) return <Empty>There is no knowledge base. Put files into a folder <code>documents/</code> of a project, or add <code>[knowledge.NAME]</code> to <code>rondel.toml</code>, and start <code>rondel serve</code> again.</Empty>;
        const chosen = bases.find((base) => base.name === id);
        if (id && !chosen) return <Empty action={<a href="#/knowledge">All bases</a>}>There is no knowledge base of this name.</Empty>;
        return (
          <>
            <div class="cards">{(chosen ? [chosen] : bases).map((base) => <BaseCard key={base.name} base={base} run={run} isOpen={!!chosen} />)}</div>
            <Search bases={chosen ? [chosen] : bases} />
            {chosen && <Documents base={chosen} />}
          </>
        );
      }}</Loading>
    </Screen>
  );
}

function BaseCard({ base, run, isOpen }: { base: Base; run: (path: string, body: unknown) => Promise<void>; isOpen: boolean }) {
  const path = `/api/knowledge/${enc(base.name)}`;
  const running = base.sync?.state === "running";
  const missing = base.download;
  const embedded = base.chunks ? Math.floor((base.vectors / base.chunks) * 100) : 0;
  return (
    <section class="card stack tight" aria-label={base.name}>
      <div class="row"><h2 class="grow cut">{base.name}</h2>
        {!running && !missing && <button class={base.synced_at ? "" : "primary"} onClick={() => void run(`${path}/sync`, {})}>{base.sync?.state === "failed" || base.sync?.state === "cancelled" ? "Try again" : "Sync"}</button>}</div>
      <div class="kv">
        <span>Documents</span><b>{count(base.documents)}</b>
        <span>Passages</span><b>{count(base.chunks)}</b>
        <span>Found by meaning</span><b>{base.embedder ? `${embedded} % (${base.embedder})` : "no, by words only"}</b>
        <span>Last sync</span><b>{base.synced_at ? moment(base.synced_at) : "never"}</b>
        <span>From</span><b>{base.sources.join(", ")}</b>
      </div>
      {missing && !running && (
        <div class="note warning">A sync downloads {missing.title} first ({missing.size}, {missing.licence}), to find passages by their meaning.
          <div class="row wrap"><button class="primary" onClick={() => void run(`${path}/sync`, { download: true })}>Download and sync</button></div></div>
      )}
      {base.problems > 0 && <div class="note warning">{count(base.problems)} {base.problems === 1 ? "file" : "files"} could not be read. {!isOpen && <a href={`#/knowledge/${enc(base.name)}`}>See which</a>}</div>}
      <WorkView work={base.sync} name={`Sync of ${base.name}`} onCancel={() => void run(`${path}/cancel`, undefined)} />
      {!isOpen && <a class="small" href={`#/knowledge/${enc(base.name)}`}>Documents</a>}
    </section>
  );
}

function Search({ bases }: { bases: Base[] }) {
  const [query, setQuery] = useState("");
  const [found, setFound] = useState<Passage[]>();
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const search = async () => {
    if (!query.trim()) return;
    setBusy(true);
    try {
      setFound(await get<Passage[]>(`/api/knowledge/search?query=${enc(query)}&base=${enc(bases.length === 1 ? bases[0]!.name : "")}`));
      setError("");
    } catch (failure) { setError((failure as Error).message); } finally { setBusy(false); }
  };
  return (
    <section class="card stack" aria-label="Search">
      <h2>What would an agent find?</h2>
      <form class="row" onSubmit={(event) => { event.preventDefault(); void search(); }}>
        <input class="grow" type="search" value={query} placeholder="A question or a few words" aria-label="Search the knowledge" onInput={(event) => setQuery(event.currentTarget.value)} dir="auto" />
        <button class="primary" disabled={busy || !query.trim()}>Search</button>
      </form>
      {error && <Failed error={error} />}
      {found && !error && (found.length ? (
        <ol class="passages">{found.map((passage) => (
          <li><div class="row"><b class="cut">{passage.title}</b><span class="soft small cut grow">{passage.headings}</span></div>
            <div class="soft small mono wrap-any">{passage.where}{passage.line ? `:${passage.line}` : passage.page ? `, page ${passage.page}` : ""}</div>
            <p dir="auto">{short(passage.text, 600)}</p></li>
        ))}</ol>
      ) : <Empty>Nothing fits. A sync reads files that are new.</Empty>)}
    </section>
  );
}

function Documents({ base }: { base: Base }) {
  const [filter, setFilter] = useState("");
  const loaded = useLoaded<{ documents: Document[]; total: number }>((signal) => get(`/api/knowledge/${enc(base.name)}/documents?filter=${enc(filter)}`, signal), [base.name, base.synced_at, filter]);
  return (
    <section class="stack">
      <div class="row wrap"><h2 class="grow">Documents</h2><input type="search" placeholder="Filter" aria-label="Filter documents" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} /></div>
      <Loading loaded={loaded}>{({ documents, total }) => total || filter ? (
        <>
          <Table label="Documents" rows={documents} columns={[
            { name: "Document", of: (one) => one.path, show: (one) => <span class="mono wrap-any">{one.path}</span> },
            { name: "Title or problem", of: (one) => one.problem || one.title, show: (one) => (one.problem ? <span class="bad">{one.problem}</span> : one.title) },
            { name: "Tags", of: (one) => one.tags?.join(", ") },
            { name: "Passages", of: (one) => one.chunks ?? 0, numeric: true },
          ]} />
          {total > documents.length && <p class="soft small">The first {count(documents.length)} of {count(total)}; filter to find others.</p>}
        </>
      ) : <Empty action={<button onClick={() => go("knowledge")}>Back</button>}>Nothing was read yet. Sync reads the files.</Empty>}</Loading>
    </section>
  );
}
