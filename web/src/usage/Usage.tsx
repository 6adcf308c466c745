// What was spent: a chart over the same table, and the limits with what is left.
import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../api";
import { count, dollars } from "../format";
import { Empty, Loading, Screen, Table, useLoaded } from "../parts/common";

interface Totals { calls?: number; unpriced?: number; tokens_in?: number; tokens_out?: number; cost_nanousd?: number }
interface Row { value?: string; key?: string; totals: Totals }
interface Limit { rule: { tokens?: number; money?: number; mode?: string; window?: string; scope?: Record<string, string> }; account: { value?: string; window?: string; dimension?: string }; balance: { tokens?: number; cost_nanousd?: number; reserved_tokens?: number } }
interface Report { by: string; window: string; totals: Record<string, Totals>; rows: Row[]; limits: Limit[] }

const TITLES: Record<string, string> = { day: "Today", week: "This week", month: "This month", lifetime: "All time" };
const nameOf = (row: Row): string => (row.value ?? "").split("\x1f").join(" / ");
const upper = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);
/** Calls without a price are not free: their cost is not known. */
const money = (totals?: Totals) => (totals?.unpriced ? (totals.cost_nanousd ? `at least ${dollars(totals.cost_nanousd / 1e9)}` : "no price") : dollars((totals?.cost_nanousd ?? 0) / 1e9));

export function Usage() {
  const [by, setBy] = useState("model");
  const [window_, setWindow] = useState("day");
  const [filter, setFilter] = useState("");
  const loaded = useLoaded<Report>((signal) => get(`/api/usage?by=${by}&window=${window_}&limit=500`, signal), [by, window_]);
  return (
    <Screen title="Usage" actions={<>
      <select aria-label="Group by" value={by} onChange={(event) => setBy(event.currentTarget.value)}>{["model", "agent", "person", "key", "kind", "conversation"].map((one) => <option>{one}</option>)}</select>
      <select aria-label="Window" value={window_} onChange={(event) => setWindow(event.currentTarget.value)}>{["day", "week", "month", "lifetime"].map((one) => <option>{one}</option>)}</select>
      <input type="search" placeholder="Filter" aria-label="Filter" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
      <a href={`/api/usage.csv?by=${by}&window=${window_}&limit=500`} download>CSV</a></>}>
      <Loading loaded={loaded}>{(report) => !report.totals.lifetime?.calls ? <Empty>Nothing was used yet.</Empty> : (
        <>
          <div class="totals">{Object.entries(report.totals).map(([name, totals]) => (
            <div class="card"><div class="soft small">{TITLES[name] ?? name}</div><h2>{money(totals)}</h2><div class="small soft">{count((totals.tokens_in ?? 0) + (totals.tokens_out ?? 0))} tokens · {count(totals.calls)} calls</div></div>
          ))}</div>
          {report.limits.length > 0 && (
            <section class="stack"><h2>Limits</h2>{report.limits.flatMap((limit) => {
              const name = limit.account.dimension === "all" ? "everything" : `${limit.account.dimension ?? ""} ${(limit.account.value ?? "").split("\x1f").join(" ")}`.trim();
              const kinds: [number | undefined, number, (value: number) => string][] = [
                [limit.rule.tokens, limit.balance.tokens ?? 0, count], [limit.rule.money, (limit.balance.cost_nanousd ?? 0) / 1e9, dollars],
              ];
              return kinds.filter(([most]) => most !== undefined).map(([most = 0, used, shown]) => {
                const share = most ? Math.min(1, used / most) : 1;
                return <div><div class="row small"><span class="grow">{name} · {limit.rule.window ?? "day"} · {limit.rule.mode ?? "warn"}</span><span class="num">{shown(used)} of {shown(most)}, {shown(Math.max(0, most - used))} left</span></div>
                  <div class="bar" role="meter" aria-valuenow={Math.round(share * 100)} aria-valuemin={0} aria-valuemax={100} aria-label={name}><i class={share >= 1 ? "over" : ""} style={{ left: 0, width: `${share * 100}%` }} /></div></div>;
              });
            })}</section>
          )}
          {report.window !== "lifetime" && new Set(report.rows.map((row) => row.key)).size > 1 && <Chart report={report} />}
          <Table label="Usage" rows={report.rows} filter={filter} columns={[
            { name: upper(report.window), of: (row) => row.key },
            { name: upper(by), of: (row) => nameOf(row) || "(none)" },
            { name: "Calls", of: (row) => row.totals.calls ?? 0, show: (row) => count(row.totals.calls), numeric: true },
            { name: "Tokens in", of: (row) => row.totals.tokens_in ?? 0, show: (row) => count(row.totals.tokens_in), numeric: true },
            { name: "Tokens out", of: (row) => row.totals.tokens_out ?? 0, show: (row) => count(row.totals.tokens_out), numeric: true },
            { name: "Cost", of: (row) => row.totals.cost_nanousd ?? 0, show: (row) => money(row.totals), numeric: true },
          ]} />
        </>
      )}</Loading>
    </Screen>
  );
}

const HEIGHT = 220;
/** A day or a week without its year: there is little room below an axis. */
const short = (key: string) => (/^\d+-(\d+-\d+|W\d+)$/.test(key) ? key.slice(5) : key);

function Chart({ report }: { report: Report }) {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let plot: { destroy(): void; setSize(size: { width: number; height: number }): void } | undefined;
    let gone = false;
    const resized = new ResizeObserver(([box]) => plot?.setSize({ width: box!.contentRect.width, height: HEIGHT }));
    resized.observe(ref.current!);
    void (async () => {
      const { default: uPlot } = await import("uplot");
      if (gone || !ref.current) return;
      const keys = [...new Set(report.rows.map((row) => row.key ?? ""))].filter(Boolean).sort();
      const sums = new Map<string, number>();
      for (const row of report.rows) sums.set(nameOf(row), (sums.get(nameOf(row)) ?? 0) + (row.totals.tokens_in ?? 0) + (row.totals.tokens_out ?? 0));
      const names = [...sums].sort((a, b) => b[1] - a[1]).slice(0, 6).map(([name]) => name);
      const style = getComputedStyle(document.documentElement);
      const of = (name: string, key: string) => report.rows.filter((row) => nameOf(row) === name && row.key === key).reduce((sum, row) => sum + (row.totals.tokens_in ?? 0) + (row.totals.tokens_out ?? 0), 0);
      plot = new uPlot({
        width: ref.current.clientWidth, height: HEIGHT,
        scales: { x: { time: false } },
        axes: [{ values: (_: unknown, at: number[]) => at.map((x) => short(keys[x] ?? "")), space: 64, incrs: [1, 2, 5, 7, 14, 30, 60, 120, 365], stroke: style.getPropertyValue("--soft"), grid: { show: false } }, { stroke: style.getPropertyValue("--soft"), grid: { stroke: style.getPropertyValue("--line") }, size: 70 }],
        series: [{ label: upper(report.window), value: (_: unknown, x: number) => keys[x] ?? "" }, ...names.map((name, index) => ({ label: name || "(none)", stroke: style.getPropertyValue(`--c${index + 1}`), width: 2, dash: index > 2 ? [6, 4] : undefined, points: { show: keys.length < 40 } }))],
      }, [keys.map((_, index) => index), ...names.map((name) => keys.map((key) => of(name, key)))] as never, ref.current);
    })();
    return () => { gone = true; resized.disconnect(); plot?.destroy(); };
  }, [report]);
  return <div ref={ref} role="img" aria-label="Tokens over time; the table below has the same numbers" />;
}
