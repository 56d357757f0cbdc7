// Embeddings in the plane of their first two principal components, and the similarity of positions.
import { architecture } from "../architecture";
import { figure, h, percent } from "../html";
import { squares, thumbnail } from "../heat";
import { layerOf, leaf } from "../linear";
import { FEW, scatter } from "../scatter";
import { sinusoidal, slope, turning } from "../position";
import { sourceWords, type Params, type Run } from "../run";
import { shown } from "../tokenizer";
import { missing, section } from "./section";

const PLACES = 64;

export function embedding(run: Run, params: Params | null): HTMLElement {
  const many = (run.embedding?.points.length ?? 0) > FEW;
  return section(
    "embedding",
    "Embeddings and positions",
    "The vectors by which the model represents tokens, and how it encodes positions.",
    h("div", { class: many ? "rows" : "columns" }, plane(run), positions(run, params)),
  );
}

function plane(run: Run): HTMLElement {
  if (!run.embedding)
    return missing(
      architecture(run)
        ? "The vocabulary is too large to be drawn."
        : `This page cannot show the embeddings of the architecture ${run.architecture}.`,
    );
  const { points, shares } = run.embedding;
  const { digits } = run.task;
  const words = digits ? " The line joins the digits in order." : "";
  return figure(
    "Embeddings",
    `the first two principal components: ${percent(shares[0], 0)} and ${percent(shares[1], 0)} of the variance`,
    null,
    scatter(
      `Embeddings of ${points.length} tokens in two dimensions`,
      points,
      sourceWords(run).vocabulary.map(shown),
      digits,
    ),
    h("p", { class: "note" }, `Tokens that are close together have similar embeddings.${words}`),
  );
}

function positions(run: Run, params: Params | null): HTMLElement {
  const cfg = run.model;
  const twin = architecture(run);
  if (twin && !twin.attends)
    return missing("A recurrent network needs no position encoding, since it reads one token after another.");
  if (cfg.position === undefined)
    return missing(`This page cannot show the positions of the architecture ${run.architecture}.`);
  if (cfg.position === "none")
    return missing("This model has no position encoding: it knows the order of tokens only from the causal mask.");
  if (cfg.position === "sinusoidal")
    return alike(
      "Sinusoidal positions",
      Array.from({ length: PLACES }, (_, p) => sinusoidal(p, cfg.d_model)),
    );
  if (cfg.position === "rotary")
    return alike(
      "Rotary positions",
      Array.from({ length: PLACES }, (_, p) => sinusoidal(p, turning(cfg.d_model / cfg.n_heads))),
    );
  if (!params) return missing("This page does not contain the model, so it cannot show its positions.");
  if (cfg.position === "learned") {
    const learned = (name: string, title: string) => {
      const table_PD = leaf(params, name)!;
      const count = Math.min(PLACES, table_PD.length / cfg.d_model);
      const row = (_: unknown, p: number) => table_PD.subarray(p * cfg.d_model, (p + 1) * cfg.d_model);
      return alike(title, Array.from({ length: count }, row));
    };
    const sides = ["", "encoder", "decoder"].flatMap((side) => {
      const name = side ? `${side}.position.table` : "position.table";
      return params[name] ? [learned(name, `Learned positions${side && ` of the ${side}`}`)] : [];
    });
    return h("div", {}, ...sides);
  }
  if (cfg.position === "alibi")
    return biases(
      `ALiBi: bias of a score by distance`,
      Array.from({ length: cfg.n_heads }, (_, k) => Array.from({ length: 16 }, (_, o) => -slope(k, cfg.n_heads) * o)),
      cfg.n_heads,
      offsets(16),
    );
  if (cfg.position !== "relative") return missing(`This page cannot show ${cfg.position} positions.`);
  const name = "blocks.attention.relative.table";
  const width = params[name].shape[2];
  const rows = Array.from({ length: cfg.n_layers }, (_, l) => {
    const table_HO = layerOf(params, name, l)!;
    return Array.from({ length: cfg.n_heads }, (_, k) => table_HO.subarray(k * width, k * width + Math.min(width, 24)));
  }).flat();
  return biases("Relative positions: bias of a score by distance", rows, cfg.n_heads, offsets(rows[0].length));
}

const offsets = (count: number) => Array.from({ length: count }, (_, o) => String(o));

/** The similarity of positions: the cosine of their vectors. */
function alike(title: string, vectors: ArrayLike<number>[]): HTMLElement {
  const dot = (a: ArrayLike<number>, b: ArrayLike<number>) => Array.from(a).reduce((sum, x, i) => sum + x * b[i], 0);
  const lengths = vectors.map((v) => Math.sqrt(dot(v, v)) || 1);
  const rows = vectors.map((a, p) => vectors.map((b, q) => dot(a, b) / lengths[p] / lengths[q]));
  const picture = thumbnail(rows, vectors.length);
  picture.classList.add("large");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `${title}: similarity of positions 1 to ${vectors.length}`);
  return figure(title, `cosine similarity of positions 1 to ${vectors.length}`, null, picture);
}

/** A bias for each head and offset. */
function biases(title: string, rows: ArrayLike<number>[], heads: number, columns: string[]): HTMLElement {
  const largest = Math.max(1e-9, ...rows.flatMap((row) => [...Array.from(row)].filter((x) => x > -1e8).map(Math.abs)));
  const names = rows.map((_, i) =>
    rows.length > heads ? `${Math.floor(i / heads) + 1}.${(i % heads) + 1}` : String(i + 1),
  );
  const picture = squares(
    title,
    rows,
    names,
    columns,
    (x) => Math.max(-1, x / largest),
    (r, c) => `head ${names[r]}, ${columns[c]} back: ${rows[r][c].toFixed(2)}`,
  );
  const unit = `${rows.length > heads ? "rows: layer.head" : "rows: heads"}; columns: tokens back; full colour: ±${largest.toFixed(1)}`;
  return figure(title, unit, null, h("div", { class: "matrix-frame" }, picture));
}
