// What Python puts into the page: the run as JSON, and the weights as base64 of little-endian float32.
import type { BytePairs } from "./bytePairs";

export interface Leaf {
  data: Float32Array;
  shape: number[];
}
/** The parameters by their dotted path, such as blocks.attention.query. */
export type Params = Record<string, Leaf>;
/** A model's Config, as apformer/report/template.py writes it. */
export type Config = Record<string, any>;
/** A part that can be switched off: its kind, and where it is. */
export type Part = [] | [kind: string, ...index: number[]];

export interface Probe {
  tokens: number[][];
  weights: number[][];
  terms: number[][] | null;
  sources?: number[][];
}
export interface Loss {
  loss: number;
  exact?: number;
}

/** A vocabulary: the text of each token, how a text is cut into tokens, and the token that ends a text. */
export interface Words {
  vocabulary: string[];
  /** If tokens are byte pairs, how they cut a text; null if this page cannot do it. */
  byte_pairs?: BytePairs | null;
  end: number | null;
}

/** What the page needs to know about a task; apformer/report/sections.py explains each field. */
export interface Task {
  does: string;
  prompt: { ask: string; terms: Terms | null; longest: number | null };
  judges: string | null;
  plays: "continue" | "translate";
  certifies: boolean;
  digits: number;
  line: number | null;
  end: number | null;
  /** The settings of beam search in the evaluation. */
  search: { beams: number; alpha: number } | null;
}
export interface Terms {
  width: number;
  rules: Rule[];
  differences: [number, number] | null;
}
export interface Rule {
  name: string;
  coefficients: number[];
  constant: number;
  modulus: number | null;
}

/** A text, or pieces of text of which some are highlighted. */
export type Cell = string | { pieces: [string, boolean][]; code: boolean; play: string | null };
export interface LinesBlock {
  kind: "lines";
  title: string;
  x: string;
  y: string;
  at: number[];
  counts: number[] | null;
  series: Record<string, number[]>;
  share: boolean;
  mean: number | null;
}
export interface BarsBlock {
  kind: "bars";
  title: string;
  unit: string;
  series: string[];
  groups: { name: string; note: string; values: (number | null)[] }[];
  points: boolean;
}
export interface TableBlock {
  kind: "table";
  title: string;
  head: string[];
  rows: Cell[][];
}
export interface DifferencesBlock {
  kind: "differences";
  firsts: [number, number][];
  differences: [number, number][];
  cells: { count: number; share: number | null }[][];
}
export type Block = LinesBlock | BarsBlock | TableBlock | DifferencesBlock;
export interface Charts {
  title: string;
  lead: string;
  blocks: Block[] | null;
}
export interface Listing {
  title: string;
  lead: string;
  head: string[];
  rows: Cell[][] | null;
  groups: Record<string, string[]>;
  none: string;
}

export interface Run extends Omit<Words, "end"> {
  name: string;
  architecture: string;
  model: Config;
  settings: { training: any; [part: string]: any };
  versions: Record<string, string | null>;
  source: Record<string, any>;
  parameters: number;
  parameters_sha256: string;
  step: number;
  member: number;
  seed: number;
  /** The vocabulary of the sources, if that of the translations is another. */
  source_words?: Words;
  task: Task;
  facts: [name: string, value: string, note: string][];
  right: Charts;
  wrong: Listing | null;
  missing: Record<string, string>;
  metrics: Record<string, any>[] | null;
  diverged: { member: number; step: number }[];
  floor?: { nats: number; why: string } | null;
  certificate: Record<string, any> | null;
  embedding: { points: [number, number][]; shares: number[] } | null;
  leaves: { name: string; shape: number[] }[];
  probe?: Probe;
  ablation?: ({ part: Part } & Loss)[];
  examples?: string[];
  references?: string[];
}

/** The vocabulary of sources, which is that of all texts unless sources have their own. */
export const sourceWords = (run: Run): Words => run.source_words ?? { ...run, end: run.task.end };

/** What the page calls a token. */
export const tokenName = (run: Run) => (run.byte_pairs === undefined ? "character" : "token");

/** The reason why a result is missing. */
export const unevaluated = (run: Run, name: string) =>
  run.missing[name] ?? run.missing.evaluation ?? "This run has not been evaluated. Run `apformer evaluate` to do so.";

/** The parameters, each a view of one block of numbers; null if the page does not contain the model. */
export function readParams(run: Run, base64: string): Params | null {
  if (!run.leaves.length) return null;
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  const params: Params = {};
  let start = 0;
  for (const { name, shape } of run.leaves) {
    const size = shape.reduce((product, length) => product * length, 1);
    params[name] = { data: new Float32Array(bytes.buffer, 4 * start, size), shape };
    start += size;
  }
  return params;
}
