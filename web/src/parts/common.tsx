// Small parts that every screen uses.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api";
import { menuOpen } from "../state";

export function MenuButton() {
  return <button class="plain menu-button" aria-label="Show the menu" onClick={() => { menuOpen.value = true; }}>☰</button>;
}

export function Screen({ title, actions, children }: { title: string; actions?: ComponentChildren; children: ComponentChildren }) {
  useEffect(() => { document.title = `${title} · Rondel`; }, [title]);
  return (
    <main class="screen" tabIndex={-1}>
      <div class="inner">
        <div class="screen-head"><MenuButton /><h1 class="grow">{title}</h1>{actions}</div>
        {children}
      </div>
    </main>
  );
}

export function Empty({ children, action }: { children: ComponentChildren; action?: ComponentChildren }) {
  return <div class="empty"><div>{children}</div>{action}</div>;
}

export function Failed({ error, retry }: { error: string; retry?: () => void }) {
  return <div class="empty bad" role="alert"><div>{error}</div>{retry && <button onClick={retry}>Try again</button>}</div>;
}

/** What a person sees who may not see the screen. */
export function NoRights() {
  return <Empty action={<a href="#/chat">To the chat</a>}>Only an admin can see this. Ask whoever runs this server for the role <code>admin</code>.</Empty>;
}

export interface Loaded<T> { data?: T; error: string; status: number; slow: boolean; reload: () => void }

/** Loads something; `slow` only after a moment, so that nothing flashes. */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, inputs: unknown[]): Loaded<T> {
  const [data, setData] = useState<T>();
  const [error, setError] = useState("");
  const [status, setStatus] = useState(0);
  const [slow, setSlow] = useState(false);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    const timer = setTimeout(() => setSlow(true), 300);
    load(controller.signal)
      .then((found) => { setData(() => found); setError(""); })
      .catch((failure: Error) => { if (!controller.signal.aborted) { setError(failure.message); setStatus(failure instanceof ApiError ? failure.status : 0); } })
      .finally(() => { clearTimeout(timer); if (!controller.signal.aborted) setSlow(false); });
    return () => { clearTimeout(timer); controller.abort(); };
  }, [...inputs, turn]);
  return { data, error, status, slow, reload: () => setTurn((t) => t + 1) };
}

export function Loading<T>({ loaded, children }: { loaded: Loaded<T>; children: (data: T) => ComponentChildren }) {
  if (loaded.error && loaded.status === 403) return <NoRights />;
  if (loaded.error && loaded.data === undefined) return <Failed error={loaded.error} retry={loaded.reload} />;
  if (loaded.data === undefined) return loaded.slow ? <Empty>Loading…</Empty> : null;
  return <>{loaded.error && <div class="banner bad" role="alert">{loaded.error}</div>}{children(loaded.data)}</>;
}

export interface Column<T> { name: string; of: (row: T) => string | number | undefined; show?: (row: T) => ComponentChildren; numeric?: boolean }

const ROWS = 200;

/** A table that can be sorted and filtered. It shows the first rows and more on demand. */
export function Table<T>({ columns, rows, onOpen, isOn, filter = "", label }: { columns: Column<T>[]; rows: T[]; onOpen?: (row: T) => void; isOn?: (row: T) => boolean; filter?: string; label: string }) {
  const [sort, setSort] = useState<{ at: number; down: boolean } | null>(null);
  const [most, setMost] = useState(ROWS);
  const wanted = filter.toLowerCase();
  let shown = wanted ? rows.filter((row) => columns.some((column) => String(column.of(row) ?? "").toLowerCase().includes(wanted))) : rows;
  if (sort) {
    const of = columns[sort.at]!.of;
    shown = [...shown].sort((a, b) => {
      const [x, y] = [of(a) ?? "", of(b) ?? ""];
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return sort.down ? -order : order;
    });
  }
  return (
    <div class="table-wrap" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column, at) => (
              <th class={column.numeric ? "num" : ""} scope="col" aria-sort={sort?.at === at ? (sort.down ? "descending" : "ascending") : undefined}>
                <button onClick={() => setSort(sort?.at === at ? (sort.down ? null : { at, down: true }) : { at, down: false })}>
                  {column.name}{sort?.at === at ? (sort.down ? " ↓" : " ↑") : ""}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.slice(0, most).map((row) => (
            <tr class={`${onOpen ? "open" : ""} ${isOn?.(row) ? "on" : ""}`} onClick={onOpen && (() => onOpen(row))} tabIndex={onOpen ? 0 : undefined}
              onKeyDown={onOpen && ((event) => { if (event.key === "Enter") onOpen(row); })}>
              {columns.map((column) => <td class={column.numeric ? "num" : ""} data-label={column.name}>{column.show ? column.show(row) : column.of(row)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
      {shown.length > most && <div class="empty"><button onClick={() => setMost(most + ROWS)}>Show more ({shown.length - most} left)</button></div>}
      {shown.length === 0 && <Empty>{rows.length ? "Nothing matches the filter." : "Nothing here yet."}</Empty>}
    </div>
  );
}

export function Dialog({ label, onClose, children }: { label: string; onClose: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => { ref.current?.showModal(); }, []); // an effect comes later: keys pressed until then would go elsewhere
  return (
    <dialog ref={ref} aria-label={label} onClose={onClose} onClick={(event) => { if (event.target === ref.current) onClose(); }}
      onKeyDown={(event) => { if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); onClose(); } }}>
      {children}
    </dialog>
  );
}

export function CopyButton({ text, label = "Copy" }: { text: () => string; label?: string }) {
  const [told, setTold] = useState("");
  return (
    <button class="plain tiny" onClick={async () => {
      const { copyText } = await import("../format");
      setTold((await copyText(text())) ? "Copied" : "Not copied");
      setTimeout(() => setTold(""), 1_500);
    }}>{told || label}</button>
  );
}
