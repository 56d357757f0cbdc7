// Turns what the user types into tokens, or says in a sentence what is wrong with it.
import * as bytePairs from "./bytePairs";
import { places } from "./position";
import { sourceWords, type Run, type Words } from "./run";
import { encodeTerms } from "./terms";

export interface Reading {
  tokens: number[];
  fault: string | null;
  note: string | null;
}

export const SPACE = " ";
/** How a token is shown: with visible signs for white space. */
export function shown(token: string): string {
  return token === SPACE ? "␣" : token.replaceAll(SPACE, "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
}

/** A text in one line. */
export const shownText = (text: string) => text.replaceAll("\n", "↵").replaceAll("\t", "⇥");

/** The text of tokens, without end tokens. */
export function textOf(tokens: number[], run: Run): string {
  if (run.byte_pairs) return bytePairs.decode(tokens, run.byte_pairs);
  return tokens.map((token) => run.vocabulary[token]).join("");
}

export const fault = (sentence: string): Reading => ({ tokens: [], fault: sentence, note: null });

/** The tokens of a prompt. */
export function encode(text: string, run: Run): Reading {
  return run.task.prompt.terms ? encodeTerms(text, run) : encodeText(text, run, targetWords(run), run.task.prompt.ask);
}

const targetWords = (run: Run): Words => ({ ...run, end: run.task.end });

/** The tokens of a source sentence, with its end token. */
export const encodeSource = (text: string, run: Run) =>
  encodeSentence(text, run, sourceWords(run), run.task.prompt.ask);

/** The tokens of a translation, with its end token. */
export const encodeTarget = (text: string, run: Run, empty: string) =>
  encodeSentence(text, run, targetWords(run), empty);

function encodeSentence(text: string, run: Run, words: Words, empty: string): Reading {
  const { prompt } = run.task;
  const reading = encodeText(text.trim() && text, run, words, empty);
  const length = reading.tokens.length + 1;
  const most = Math.min(prompt.longest ?? Infinity, places(run.model));
  if (length > most)
    return fault(`This text has ${length} tokens with its end token, but this model reads at most ${most}: type less.`);
  return reading.fault ? reading : { ...reading, tokens: [...reading.tokens, words.end!] };
}

function encodeText(text: string, run: Run, words: Words, empty: string): Reading {
  if (!text) return fault(empty);
  if (/\p{Surrogate}/u.test(text))
    return fault("This text contains half of a character (a lone surrogate), which cannot be encoded.");
  if (words.byte_pairs === null) return fault(run.missing.byte_pairs);
  if (words.byte_pairs) return { tokens: bytePairs.encode(text, words.byte_pairs), fault: null, note: null };
  const tokens = [...text].map((letter) => words.vocabulary.indexOf(letter));
  const unknown = [...text][tokens.indexOf(-1)];
  return unknown ? fault(`“${unknown}” is not in the vocabulary of this model.`) : { tokens, fault: null, note: null };
}
