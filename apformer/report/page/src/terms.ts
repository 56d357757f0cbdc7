// Prompts of numbers: what is wrong with one, the rule that its terms follow, and what comes next by that rule.
import type { Rule, Run } from "./run";
import { fault, SPACE, type Reading } from "./tokenizer";

const LONG = 24; // most digits of a term that a message quotes

/** The name of the rule with which a prompt begins, or "", and its terms. */
function parse(text: string, run: Run): { name: string; terms: string[] } {
  const words = text.trim().split(/\s+/);
  const named = run.task.prompt.terms!.rules.some(({ name }) => name && name === words[0]);
  return named ? { name: words[0], terms: words.slice(1) } : { name: "", terms: words };
}

/** The tokens of a prompt of terms. */
export function encodeTerms(text: string, run: Run): Reading {
  const { width, rules } = run.task.prompt.terms!;
  const { name, terms } = parse(text, run);
  if (!terms.length || !terms[0]) return fault(run.task.prompt.ask);
  if (!name && rules.length && rules.every((rule) => rule.name))
    return fault(`Begin with the name of a rule: ${rules.map((rule) => rule.name).join(", ")}.`);
  const other = [...terms.join("")].find((letter) => !/[0-9]/.test(letter));
  if (other) return fault(`“${other}” is neither a digit nor a space: type only digits and spaces.`);
  const wrong = terms.find((term) => term.length !== width);
  if (wrong) {
    const remedy = wrong.length < width ? `: write ${wrong.padStart(width, "0")}` : "";
    const quoted = wrong.length > LONG ? wrong.slice(0, LONG) + "…" : wrong;
    return fault(
      `“${quoted}” has ${wrong.length} ${wrong.length === 1 ? "digit" : "digits"}, but the terms of this model have ${width}${remedy}.`,
    );
  }
  const words = [...(name ? [name] : []), ...terms];
  const letters = words.flatMap((word, i) => [...(i ? [SPACE] : []), ...(word === name ? [word] : [...word])]);
  return { tokens: letters.map((letter) => run.vocabulary.indexOf(letter)), fault: null, note: note(text, run) };
}

/** A remark about valid terms, if there is one. */
function note(text: string, run: Run): string | null {
  const { rules, differences } = run.task.prompt.terms!;
  if (!rules.length) return null;
  const { terms } = parse(text, run);
  const found = rulesOf(text, run);
  if (!found.length) return "These terms follow no rule of this task, so there is no right continuation.";
  if (found.every((rule) => terms.length < rule.coefficients.length))
    return `${terms.length === 1 ? "One term does" : "These terms do"} not determine the next one.`;
  if (!differences || terms.length < 2) return null;
  const [first, second] = terms.map(BigInt);
  const [least, most] = differences.map(BigInt);
  const known = least <= second - first && second - first <= most;
  return known ? null : `The model was trained on differences from ${least} to ${most}; this one is ${second - first}.`;
}

/** A number as a term; null if it does not fit in the digits. */
function written(number: bigint, width: number): string | null {
  const text = String(number).padStart(width, "0");
  return number < 0n || text.length > width ? null : text;
}

/** The next number by a rule. */
function after(values: bigint[], { coefficients, constant, modulus }: Rule): bigint {
  const last = values.length - 1;
  const sum = coefficients.reduce((total, c, i) => total + BigInt(c) * values[last - i], BigInt(constant));
  if (modulus === null) return sum;
  return ((sum % BigInt(modulus)) + BigInt(modulus)) % BigInt(modulus);
}

/** The rules that all terms of a prompt follow. */
function rulesOf(text: string, run: Run): Rule[] {
  const { name, terms } = parse(text, run);
  const values = terms.map(BigInt);
  const follows = (rule: Rule) =>
    values.every((x, i) => i < rule.coefficients.length || x === after(values.slice(0, i), rule));
  return run.task.prompt.terms!.rules.filter((rule) => rule.name === name && follows(rule));
}

/** The next terms, null for each that does not fit in the digits; null if no single rule determines them. */
export function continuation(text: string, run: Run, count: number): (string | null)[] | null {
  const [rule, ...others] = rulesOf(text, run);
  const { terms } = parse(text, run);
  if (!rule || others.length || terms.length < rule.coefficients.length) return null;
  const values = terms.map(BigInt);
  return Array.from({ length: count }, () => {
    values.push(after(values, rule));
    return written(values[values.length - 1], terms[0].length);
  });
}

/** How many of the next `most` terms fit in the digits. */
export function termsThatFit(text: string, run: Run, most: number): number {
  const end = continuation(text, run, most)?.indexOf(null) ?? -1;
  return end < 0 ? most : end;
}
