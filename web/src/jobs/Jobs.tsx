// Background jobs and schedules: what runs, how far it is, and ways to cancel it and to run it again.
import { useEffect, useState } from "preact/hooks";
import { enc, get, post } from "../api";
import { moment } from "../format";
import { Empty, Loading, Screen, Table, useLoaded } from "../parts/common";

interface Job { id: string; name: string; agent?: string; status?: string; conversation?: string; started_at?: number; progress?: number; text?: string; summary?: string; steps?: string[]; detail?: string }
interface Scheduled { id: string; agent: string; text: string; conversation: string; when: string; next_at: number }

const isOver = (job: Job): boolean => ["done", "failed", "cancelled"].includes(job.status ?? "");

export function Jobs() {
  const loaded = useLoaded<{ jobs: Job[]; schedules: Scheduled[] }>((signal) => get("/api/jobs", signal), []);
  const [error, setError] = useState("");
  useEffect(() => { const timer = setInterval(() => { if (!document.hidden) loaded.reload(); }, 3_000); return () => clearInterval(timer); }, []);
  const run = async (id: string, what: "cancel" | "retry") => {
    try { await post(`/api/jobs/${enc(id)}/${what}`); setError(""); loaded.reload(); } catch (failure) { setError((failure as Error).message); }
  };
  return (
    <Screen title="Jobs and schedules">
      {error && <div class="note error" role="alert">{error}</div>}
      <Loading loaded={loaded}>{({ jobs, schedules }) => !jobs.length && !schedules.length ? <Empty>No background jobs and no schedules. An agent starts them with its tools, and <code>rondel jobs schedule</code> adds one.</Empty> : (
        <>
          <h2>Jobs</h2>
          {!jobs.length && <p class="soft">No job has run yet.</p>}
          {jobs.length > 0 && <Table label="Jobs" rows={jobs} columns={[
            { name: "Started", of: (job) => job.started_at, show: (job) => <span class="when">{moment(job.started_at ?? 0)}</span> },
            { name: "Job", of: (job) => job.name }, { name: "Agent", of: (job) => job.agent },
            { name: "Status", of: (job) => job.status ?? "queued", show: (job) => <span class={job.status === "failed" ? "bad" : ""}>{job.status ?? "queued"}{job.progress !== undefined && job.progress !== null && !isOver(job) ? ` ${Math.round(job.progress * 100)} %` : ""}</span> },
            { name: "What", of: (job) => job.summary || job.text || job.steps?.join(", ") },
            { name: "", of: () => "", show: (job) => <span class="row when">{isOver(job) ? <button onClick={() => void run(job.id, "retry")}>{job.status === "done" ? "Run again" : "Try again"}</button> : <button onClick={() => void run(job.id, "cancel")}>Cancel</button>}<a href={`#/chat/${enc(job.conversation ?? "")}`}>Conversation</a></span> },
          ]} />}
          <h2>Schedules</h2>
          {!schedules.length && <p class="soft">Nothing is scheduled. <code>rondel jobs schedule</code> adds a message at a time, and agents can have a tool for it.</p>}
          {schedules.length > 0 && <Table label="Schedules" rows={schedules} columns={[
            { name: "Next", of: (one) => one.next_at, show: (one) => <span class="when">{moment(one.next_at)}</span> },
            { name: "When", of: (one) => one.when }, { name: "Agent", of: (one) => one.agent }, { name: "Message", of: (one) => one.text },
            { name: "", of: () => "", show: (one) => <span class="row when"><button onClick={() => void run(one.id, "cancel")}>Cancel</button><a href={`#/chat/${enc(one.conversation)}`}>Conversation</a></span> },
          ]} />}
        </>
      )}</Loading>
    </Screen>
  );
}
