// Background jobs and schedules: what runs, how far it is, and a way to cancel it.
import { useEffect, useState } from "preact/hooks";
import { enc, get, post } from "../api";
import { moment } from "../format";
import { Empty, Loading, Screen, Table, useLoaded } from "../parts/common";

interface Job { id: string; name: string; agent?: string; status?: string; conversation?: string; started_at?: number; progress?: number; text?: string; summary?: string; detail?: string }
interface Scheduled { id: string; agent?: string; text?: string; conversation?: string; when?: unknown; next_at?: number }

export function Jobs() {
  const loaded = useLoaded<{ jobs: Job[]; schedules: Scheduled[] }>((signal) => get("/api/jobs", signal), []);
  const [error, setError] = useState("");
  useEffect(() => { const timer = setInterval(() => { if (!document.hidden) loaded.reload(); }, 3_000); return () => clearInterval(timer); }, []);
  const cancel = async (id: string) => {
    try { await post(`/api/jobs/${enc(id)}/cancel`); setError(""); loaded.reload(); } catch (failure) { setError((failure as Error).message); }
  };
  return (
    <Screen title="Jobs and schedules">
      {error && <div class="note error" role="alert">{error}</div>}
      <Loading loaded={loaded}>{({ jobs, schedules }) => !jobs.length && !schedules.length ? <Empty>No background jobs and no schedules. An agent starts them with its tools, and <code>rondel jobs schedule</code> adds one.</Empty> : (
        <>
          <h2>Jobs</h2>
          <Table label="Jobs" rows={jobs} columns={[
            { name: "Started", of: (job) => job.started_at, show: (job) => moment(job.started_at ?? 0) },
            { name: "Job", of: (job) => job.name }, { name: "Agent", of: (job) => job.agent },
            { name: "Status", of: (job) => job.status ?? "queued", show: (job) => <span class={job.status === "failed" ? "bad" : ""}>{job.status ?? "queued"}{job.progress !== undefined ? ` ${Math.round(job.progress * 100)} %` : ""}</span> },
            { name: "What", of: (job) => job.summary || job.text },
            { name: "", of: () => "", show: (job) => (["done", "failed", "cancelled"].includes(job.status ?? "") ? <a href={`#/chat/${enc(job.conversation ?? "")}`}>Conversation</a> : <button onClick={() => void cancel(job.id)}>Cancel</button>) },
          ]} />
          <h2>Schedules</h2>
          <Table label="Schedules" rows={schedules} columns={[
            { name: "Agent", of: (one) => one.agent }, { name: "Message", of: (one) => one.text },
            { name: "When", of: (one) => (typeof one.when === "string" ? one.when : JSON.stringify(one.when ?? "")) },
            { name: "", of: () => "", show: (one) => <button onClick={() => void cancel(one.id)}>Cancel</button> },
          ]} />
        </>
      )}</Loading>
    </Screen>
  );
}
