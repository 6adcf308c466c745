// Numbers, times and names as people read them.

const NUMBER = new Intl.NumberFormat("en-US");

export const count = (value: number | undefined): string => NUMBER.format(value ?? 0);

export function seconds(value: number | undefined): string {
  if (value === undefined) return "";
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  const minutes = Math.floor(value / 60);
  return minutes < 60 ? `${minutes} min ${Math.round(value % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function dollars(value: number | string | undefined | null): string {
  if (value === undefined || value === null || value === "") return "";
  const amount = Number(value);
  if (!Number.isFinite(amount)) return "";
  if (amount === 0) return "$0";
  return amount < 0.01 ? `$${amount.toFixed(5)}` : `$${amount.toFixed(amount < 1 ? 4 : 2)}`;
}

export function dayOf(at: number, now: number): string {
  const day = (t: number) => new Date(t * 1000).toDateString();
  if (at > now || day(at) === day(now)) return "Today"; // a browser whose clock is late lives before its conversations
  if (day(at) === day(now - 86_400)) return "Yesterday";
  if (now - at < 7 * 86_400) return "Previous 7 days";
  return new Date(at * 1000).toLocaleDateString(undefined, { month: "long", year: "numeric" });
}

export const clock = (at: number): string => new Date(at * 1000).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const moment = (at: number): string => new Date(at * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

export function short(value: unknown, most = 120): string {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  const line = text.replace(/\s+/g, " ");
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

export const pretty = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** A source as people name it, with its line or page. */
export function sourceName(source: { title?: string; path?: string; url?: string; line?: number; page?: number }): string {
  const at = source.line ? `:${source.line}` : source.page ? `, page ${source.page}` : "";
  return (source.title || source.path || source.url || "source") + at;
}

const CHANGES_MAX = 6;

/** What a step changed in a prompt, on one line. */
export function changesText(changes: { what: string; kind: string; id: string }[] = []): string {
  const said = changes.slice(0, CHANGES_MAX).map((change) => `${change.what} ${change.id || change.kind}`).join(", ");
  return changes.length > CHANGES_MAX ? `${said} and ${changes.length - CHANGES_MAX} more` : said || "no change";
}
