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

/** What a text is written in: the text of each token, how it is cut, and the token that ends it. */
export interface Words {
  vocabulary: string[];
  /** Of byte pairs, how a text is cut into them; null where this page does not know. */
  byte_pairs?: BytePairs | null;
  end: number | null;
}

/** What the page must know of a task; apformer/report/sections.py says what each means. */
export interface Task {
  does: string;
  prompt: { ask: string; terms: Terms | null; longest: number | null };
  judges: string | null;
  plays: "continue" | "translate";
  certifies: boolean;
  digits: number;
  line: number | null;
  end: number | null;
  /** How evaluation searches for translations. */
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

/** A text, or pieces of which some are marked. */
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
  unit: string;
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
  /** What sources are written in, where translations are written in something else. */
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

/** What the source of a translation is written in; what any other text is. */
export const sourceWords = (run: Run): Words => run.source_words ?? { ...run, end: run.task.end };

/** What a token is called. */
export const tokenName = (run: Run) => (run.byte_pairs === undefined ? "character" : "token");

/** Why there is no result of some name. */
export const unevaluated = (run: Run, name: string) =>
  run.missing[name] ?? run.missing.evaluation ?? "This run has not been evaluated: `apformer evaluate` does that.";

/** The parameters, each a view of one block of numbers; none if the page came without the model. */
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
