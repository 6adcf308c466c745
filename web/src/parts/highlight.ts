// Colours for code, in a worker. The core and each language are loaded when they are first needed.
import hljs from "highlight.js/lib/core";
import type { LanguageFn } from "highlight.js";

const LANGUAGES: Record<string, () => Promise<{ default: LanguageFn }>> = {
  bash: () => import("highlight.js/lib/languages/bash"),
  c: () => import("highlight.js/lib/languages/c"),
  cpp: () => import("highlight.js/lib/languages/cpp"),
  csharp: () => import("highlight.js/lib/languages/csharp"),
  css: () => import("highlight.js/lib/languages/css"),
  diff: () => import("highlight.js/lib/languages/diff"),
  go: () => import("highlight.js/lib/languages/go"),
  ini: () => import("highlight.js/lib/languages/ini"),
  java: () => import("highlight.js/lib/languages/java"),
  javascript: () => import("highlight.js/lib/languages/javascript"),
  json: () => import("highlight.js/lib/languages/json"),
  kotlin: () => import("highlight.js/lib/languages/kotlin"),
  lua: () => import("highlight.js/lib/languages/lua"),
  markdown: () => import("highlight.js/lib/languages/markdown"),
  php: () => import("highlight.js/lib/languages/php"),
  python: () => import("highlight.js/lib/languages/python"),
  ruby: () => import("highlight.js/lib/languages/ruby"),
  rust: () => import("highlight.js/lib/languages/rust"),
  sql: () => import("highlight.js/lib/languages/sql"),
  swift: () => import("highlight.js/lib/languages/swift"),
  typescript: () => import("highlight.js/lib/languages/typescript"),
  xml: () => import("highlight.js/lib/languages/xml"),
  yaml: () => import("highlight.js/lib/languages/yaml"),
};
const ALIASES: Record<string, string> = { sh: "bash", shell: "bash", console: "bash", zsh: "bash", js: "javascript", jsx: "javascript", ts: "typescript", tsx: "typescript", py: "python", rb: "ruby", rs: "rust", html: "xml", svg: "xml", yml: "yaml", toml: "ini", "c++": "cpp", "c#": "csharp", cs: "csharp", md: "markdown", golang: "go", kt: "kotlin" };

const COLOURED_CHARS_MAX = 100_000; // the browser needs seconds to lay out tens of thousands of spans
export const address = import.meta.url; // of this script, which the page starts as a worker

async function highlight(code: string, language: string): Promise<string | null> {
  const name = ALIASES[language.toLowerCase()] ?? language.toLowerCase();
  const load = LANGUAGES[name];
  if (!load) return null;
  if (!hljs.getLanguage(name)) hljs.registerLanguage(name, (await load()).default);
  const made = hljs.highlight(code, { language: name, ignoreIllegals: true }).value;
  return made.length > COLOURED_CHARS_MAX ? null : made;
}

if (typeof document === "undefined") onmessage = async ({ data: [code, language] }: MessageEvent<[string, string]>) => postMessage(await highlight(code, language).catch(() => null));
