// RNN, GRU and LSTM, token by token, as apformer/recurrent.py computes them: a state is carried from token to token.
import { add, layerOf, leaf, linear, type Vector } from "./linear";
import type { Output } from "./model";
import type { Config, Params } from "./run";

interface State {
  hidden: Vector;
  cell: Vector;
}

export function initCache(cfg: Config): State[] {
  const zeros = () => new Float64Array(cfg.d_model);
  return Array.from({ length: cfg.n_layers }, () => ({ hidden: zeros(), cell: zeros() }));
}

/** Logits after each new token. The states of the layers are updated in place. */
export function extend(params: Params, tokens_T: number[], state_L: State[], cfg: Config): Output {
  const output: Output = { logits_TV: [], residual_TLD: [] };
  const D = cfg.d_model;
  for (const token of tokens_T) {
    const row_D = leaf(params, "embedding.table")!.subarray(token * D, (token + 1) * D);
    const residual_LD: Vector[] = [Float64Array.from(row_D, (x) => Math.sqrt(D) * x)];
    state_L.forEach((state, layer) => {
      state_L[layer] = CELLS[cfg.cell](params, layer, state, residual_LD[layer]);
      residual_LD.push(state_L[layer].hidden);
    });
    output.logits_TV.push(readOut(params, residual_LD[cfg.n_layers]));
    output.residual_TLD.push(residual_LD);
  }
  return output;
}

export function readOut(params: Params, x_D: Vector): Vector {
  return linear(x_D, leaf(params, "head.output.weight")!, leaf(params, "head.output.bias"));
}

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

const CELLS: Record<string, (params: Params, layer: number, state: State, x_D: Vector) => State> = {
  rnn: (params, layer, { hidden, cell }, x_D) => ({
    hidden: sum(params, layer, "candidate", x_D, hidden).map(Math.tanh),
    cell,
  }),
  gru: (params, layer, { hidden, cell }, x_D) => {
    const r_D = sum(params, layer, "reset_gate", x_D, hidden).map(sigmoid);
    const z_D = sum(params, layer, "update_gate", x_D, hidden).map(sigmoid);
    const from_x_D = affine(params, layer, "candidate.input", x_D);
    const from_h_D = affine(params, layer, "candidate.hidden", hidden);
    const n_D = from_x_D.map((x, d) => Math.tanh(x + r_D[d] * from_h_D[d]));
    return { hidden: n_D.map((n, d) => (1 - z_D[d]) * n + z_D[d] * hidden[d]), cell };
  },
  lstm: (params, layer, { hidden, cell }, x_D) => {
    const gate = (name: string) => sum(params, layer, name, x_D, hidden).map(sigmoid);
    const [i_D, f_D, o_D] = [gate("input_gate"), gate("forget_gate"), gate("output_gate")];
    const n_D = sum(params, layer, "candidate", x_D, hidden).map(Math.tanh);
    const c_D = cell.map((c, d) => f_D[d] * c + i_D[d] * n_D[d]);
    return { hidden: c_D.map((c, d) => o_D[d] * Math.tanh(c)), cell: c_D };
  },
};

/** W x + b + U h. */
function sum(params: Params, layer: number, name: string, x_D: Vector, h_D: Vector): Vector {
  return add(affine(params, layer, `${name}.input`, x_D), affine(params, layer, `${name}.hidden`, h_D));
}

function affine(params: Params, layer: number, name: string, x_D: Vector): Vector {
  const part = (leaf: string) => layerOf(params, `cells.${name}.${leaf}`, layer);
  return linear(x_D, part("weight")!, part("bias"));
}
