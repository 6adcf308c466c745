// Work that the server does after its answer: how far it is, and a way to cancel it.
import { useEffect } from "preact/hooks";
import { count } from "../format";

export interface Work { state: "running" | "done" | "failed" | "cancelled"; started_at: number; step?: string; done?: number; total?: number; link?: string; result?: string; error?: string }

const size = (value: number, step: string): string => (/download|fetch|registry|http|\./i.test(step) ? `${(value / 1e6).toFixed(0)} MB` : count(value));

export function WorkView({ work, onCancel, name }: { work: Work | null | undefined; onCancel: () => void; name: string }) {
  if (!work) return null;
  if (work.state === "failed") return <div class="note error" role="alert">{work.error}</div>;
  if (work.state === "cancelled") return <div class="note">Cancelled. What was done is kept.</div>;
  if (work.state === "done") return work.result ? <div class="note" role="status">{sentence(work.result)}</div> : null;
  const share = work.total ? Math.min(1, (work.done ?? 0) / work.total) : 0;
  return (
    <div class="work" role="status">
      <div class="row small"><span class="grow cut">{work.step ? sentence(work.step, false) : "Starting"}…</span>
        {work.total ? <span class="num">{size(work.done ?? 0, work.step ?? "")} of {size(work.total, work.step ?? "")}</span> : null}
        <button class="tiny" onClick={onCancel}>Cancel</button></div>
      <div class="bar" role="progressbar" aria-label={name} aria-valuemin={0} aria-valuemax={100} aria-valuenow={work.total ? Math.round(share * 100) : undefined}><i class={work.total ? "" : "unknown"} style={{ left: 0, width: work.total ? `${share * 100}%` : "100%" }} /></div>
    </div>
  );
}

const sentence = (text: string, ended = true): string => text.charAt(0).toUpperCase() + text.slice(1) + (ended && !/[.!?]$/.test(text) ? "." : "");

/** Asks again: soon while something runs, seldom otherwise, never in a tab that nobody sees. */
export function useRefresh(reload: () => void, busy: boolean): void {
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) reload(); }, busy ? 700 : 5_000);
    return () => clearInterval(timer);
  }, [busy]);
}
