// What Python puts into the page: the run as JSON, and the weights as base64 of little-endian float32.
import type { BytePairs } from "./bytePairs";

export interface Leaf {
  data: Float32Array;
  shape: number[];
}
/** The parameters by their dotted path, such as blocks.attention.query. */
export type Params = Record<string, Leaf>;
/** A model's Config, as config.json holds it. */
export type Config = Record<string, any>;
/** A part that can be switched off: its kind, and where it is. */
export type Part = [] | [kind: string, ...index: number[]];

export interface Group {
  count: number;
  teacher_forced: number | null;
  free_running: number | null;
  [label: string]: any;
}
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

/** What a translator made of a test sentence, and the training pair with the source most like it. */
export interface Translation {
  source: string;
  reference: string;
  translation: string;
  /** Null if no training source shares a word, and left out if the training pairs were not at hand. */
  nearest?: { source: string; target: string; shared: number } | null;
}

export interface Run {
  name: string;
  task: "progressions" | "wide" | "text" | "pairs";
  architecture: "decoder" | "recurrent" | "encoder-decoder";
  settings: { training: any; model: Config; data: any; optimizer: any; drawing: any };
  versions: Record<string, string | null>;
  source: Record<string, any>;
  parameters: number;
  parameters_sha256: string;
  step: number;
  member: number;
  vocabulary: string[];
  /** Of byte pairs, how a text is cut into them; null where this page does not know. */
  byte_pairs?: BytePairs | null;
  missing: Record<string, string>;
  metrics: Record<string, any>[] | null;
  floor: number | null;
  evaluation: Record<string, any> | null;
  certificate: Record<string, any> | null;
  embedding: { points: [number, number][]; shares: number[] } | null;
  leaves: { name: string; shape: number[] }[];
  probe?: Probe;
  ablation?: ({ part: Part } & Loss)[];
  examples?: string[];
  references?: string[];
  translations?: Translation[] | null;
  circuit?: Record<string, string>;
}

/** Whether nobody knows what is right: of texts and of translations. */
export const isLanguage = (run: Run) => run.task === "text" || run.task === "pairs";

/** What a text is written in. */
export const tokenName = (run: Run) => (run.byte_pairs === undefined ? "character" : "token");

/** The run of this page. */
export function readRun(text: string): Run {
  return JSON.parse(text);
}

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
