// Builds the page into the folder that is given, or into src/rondel/surfaces/web/static. Names carry a hash of their
// content, so that browsers may keep them for ever; index.html names the current ones.
import { build } from "esbuild";
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? join(here, "..", "src", "rondel", "surfaces", "web", "static"));

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
const result = await build({
  absWorkingDir: here,
  entryPoints: ["src/main.tsx"],
  outdir: out,
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["es2022", "chrome110", "firefox115", "safari16"],
  minify: true,
  metafile: true,
  legalComments: "linked",
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  jsx: "automatic",
  jsxImportSource: "preact",
});
const outputs = Object.entries(result.metafile.outputs);
const main = outputs.find(([, info]) => info.entryPoint === "src/main.tsx");
if (!main) throw new Error("esbuild wrote no main script");
const script = basename(main[0]);
const style = basename(main[1].cssBundle ?? "");
const html = (await readFile(join(here, "src", "index.html"), "utf8"))
  .replace("{{script}}", `/assets/${script}`)
  .replace("{{style}}", `/assets/${style}`);
await writeFile(join(out, "index.html"), html);
await copyFile(join(here, "src", "icon.svg"), join(out, "icon.svg"));
console.log(`page: ${(await readdir(out)).length} files in ${out}`);
