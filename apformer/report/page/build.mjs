// Bundles page.html, page.css and src/ into ../template.html, which ships with the package, or into a file named on the command line.
// Its content-security policy names the hashes of its own style and script, and allows nothing else: no network access.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const bundle = async (entry) => {
  const result = await build({
    entryPoints: [here(entry)],
    bundle: true,
    minify: true,
    write: false,
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
  });
  return result.outputFiles[0].text.trim();
};
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const script = await bundle("src/main.ts");
const style = await bundle("page.css");
const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; base-uri 'none'; form-action 'none'`;
const parts = { policy, style: `<style>${style}</style>`, script: `<script>${script}</script>` };
const page = readFileSync(here("page.html"), "utf8").replace(
  /<!-- (policy|style|script) -->|\{policy\}/g,
  (all, name) => parts[name ?? "policy"],
);
writeFileSync(process.argv[2] ?? here("../template.html"), page);
