// What its reader types, as tokens; or what is wrong with it, in a sentence.
import * as bytePairs from "./bytePairs";
import type { Run } from "./run";
import { endOf } from "./seq2seq";

export interface Reading {
  tokens: number[];
  fault: string | null;
  note: string | null;
}

const SPACE = " ";
const LONG = 24; // digits of a term that are quoted

/** How a token is written: a space and what cannot be seen as signs. */
export function shown(token: string): string {
  return token === SPACE ? "␣" : token.replaceAll(SPACE, "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
}

/** A text in one line. */
export const shownText = (text: string) => text.replaceAll("\n", "↵").replaceAll("\t", "⇥");

/** The text of tokens, without ends of sentences. */
export function textOf(tokens: number[], run: Run): string {
  if (run.byte_pairs) return bytePairs.decode(tokens, run.byte_pairs);
  return tokens.map((token) => run.vocabulary[token]).join("");
}

const fault = (sentence: string): Reading => ({ tokens: [], fault: sentence, note: null });

/** The tokens of a text by the run's vocabulary. */
export function encode(text: string, run: Run): Reading {
  if (run.task === "text") return encodeText(text, run, "Type some text for the model to go on from.");
  if (run.task === "pairs") return encodeSentence(text, run, "Type a sentence to translate.");
  const terms = text.trim().split(/\s+/);
  if (!terms[0]) return fault("Type a progression, such as " + (run.examples?.[0] ?? "007 010 013") + ".");
  const other = [...text].find((letter) => !/[0-9\s]/.test(letter));
  if (other)
    return fault(`“${other}” is neither a digit nor a space: a progression is written with digits and spaces alone.`);
  const width = run.task === "wide" ? terms[0].length : run.settings.data.digits;
  const wrong = terms.find((term) => term.length !== width);
  if (wrong) {
    const expected = run.task === "wide" ? `the first has ${width}` : `this model knows terms of ${width}`;
    const remedy = wrong.length < width ? `: write ${wrong.padStart(width, "0")}` : "";
    return fault(
      `“${wrong.length > LONG ? wrong.slice(0, LONG) + "…" : wrong}” has ${wrong.length} ${wrong.length === 1 ? "digit" : "digits"} where ${expected}${remedy}.`,
    );
  }
  const tokens = [...terms.join(SPACE)].map((letter) => run.vocabulary.indexOf(letter));
  return { tokens, fault: null, note: progressionNote(terms, run) };
}

/** What is worth saying of terms that can be read. */
function progressionNote(terms: string[], run: Run): string | null {
  if (terms.length < 2) return "One term does not fix a progression: what comes next cannot be known.";
  const differences = differencesOf(terms, run);
  if (differences.size > 1) return "These terms are not evenly spaced, so there is no right continuation.";
  const [difference] = differences;
  const { min_difference: least, max_difference: most } = run.settings.data;
  const known = least === undefined || (BigInt(least) <= difference && difference <= BigInt(most));
  return known ? null : `The model was trained on differences from ${least} to ${most}; this one is ${difference}.`;
}

/** What each term adds to the one before: one number, of a progression. */
export function differencesOf(terms: string[], run: Run): Set<bigint> {
  const values = terms.map((term) => value(term, run));
  return new Set(values.slice(1).map((x, i) => x - values[i]));
}

/** The number that a term stands for. */
export function value(term: string, run: Run): bigint {
  return BigInt(run.settings.data.order === "lsb" ? [...term].reverse().join("") : term);
}

/** A number as a term. */
export function written(number: bigint, width: number, run: Run): string {
  const text = String(number).padStart(width, "0");
  return run.settings.data.order === "lsb" ? [...text].reverse().join("") : text;
}

export const widthOf = (text: string) => text.split(SPACE)[0].length;

/** How many more terms stay within the digits; any number where the terms fix no progression. */
export function termsThatFit(text: string, run: Run): number {
  const values = text.split(SPACE).map((term) => value(term, run));
  if (values.length < 2 || values[0] === values[1]) return Infinity;
  const [last, difference] = [values[values.length - 1], values[1] - values[0]];
  const room = difference < 0n ? last : 10n ** BigInt(widthOf(text)) - 1n - last;
  return Number(room / (difference < 0n ? -difference : difference));
}

/** A sentence with its end. */
export function encodeSentence(text: string, run: Run, empty: string): Reading {
  const { model, data } = run.settings;
  const reading = encodeText(text.trim() && text, run, empty);
  const length = reading.tokens.length + 1;
  const most = Math.min(data.longest, model.position === "learned" ? model.max_len : Infinity);
  if (length > most)
    return fault(`This has ${length} tokens with its end, and this model reads at most ${most}: type less.`);
  return reading.fault ? reading : { ...reading, tokens: [...reading.tokens, endOf(model)] };
}

function encodeText(text: string, run: Run, empty: string): Reading {
  if (!text) return fault(empty);
  if (/\p{Surrogate}/u.test(text)) return fault("This text holds half of a character, which has no bytes.");
  if (run.byte_pairs === null) return fault(run.missing.byte_pairs);
  if (run.byte_pairs) return { tokens: bytePairs.encode(text, run.byte_pairs), fault: null, note: null };
  const tokens = [...text].map((letter) => run.vocabulary.indexOf(letter));
  const unknown = [...text][tokens.indexOf(-1)];
  return unknown ? fault(`“${unknown}” is not in the vocabulary of this model.`) : { tokens, fault: null, note: null };
}
