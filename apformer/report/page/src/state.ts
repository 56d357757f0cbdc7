// What the user has chosen, and the model's output for it. Every function that draws is called after each change.
import { ablate } from "./ablate";
import { apply, type Output } from "./architecture";
import { sourceWords, type Params, type Part, type Run } from "./run";
import { shown, textOf } from "./tokenizer";

export interface Changes {
  source?: number[];
  tokens?: number[];
  given?: number;
  off?: Part[];
  hidden?: Set<number>;
  at?: number;
}

export class State {
  /** The text: the given tokens, then those that the model wrote. `at` is the selected token. */
  tokens: number[] = [];
  given = 0;
  at = 0;
  /** Of a translator: the source and its selected token. `tokens` is then the target, and begins with an end token. */
  source?: number[];
  place = 0;
  /** The parts that are switched off, and the tokens, of a translator source tokens, that no other may attend to. */
  off: Part[] = [];
  hidden = new Set<number>();
  /** The parameters with these parts switched off, and their output; `whole` is the output of the whole model. */
  current: Params;
  output!: Output;
  whole!: Output;
  /** What was off when the text was written. */
  private offThen = "";
  private draws: (() => void)[] = [];
  private later: (() => void)[] = [];
  private waiting = false;

  constructor(
    readonly run: Run,
    readonly params: Params,
  ) {
    this.current = params;
    const translates = run.task.plays === "translate";
    const source = translates ? [sourceWords(run).end!] : undefined;
    this.update({ tokens: [translates ? run.task.end! : 0], given: 1, source }); // until the user types something valid
  }

  get cfg() {
    return this.run.model;
  }

  get changed() {
    return this.off.length + this.hidden.size > 0;
  }

  private get offNow() {
    return JSON.stringify([this.off.map(String).sort(), [...this.hidden].sort()]);
  }

  /** Whether a model wrote the text that has other parts than the one now. */
  get outdated() {
    return this.offThen !== this.offNow;
  }

  /** Applies changes, runs the model, and redraws. */
  update(changes: Changes) {
    Object.assign(this, changes);
    if (changes.tokens) this.hidden = new Set([...this.hidden].filter((t) => t < this.hideable.length));
    if (changes.tokens) this.offThen = this.offNow;
    if (changes.off) this.current = changes.off.length ? ablate(this.params, changes.off) : this.params;
    if (changes.tokens) this.whole = apply(this.params, this.tokens, this.run, undefined, this.source);
    this.output = this.changed ? apply(this.current, this.tokens, this.run, this.hidden, this.source) : this.whole;
    this.at = Math.max(0, Math.min(this.at, this.steps - 1));
    this.place = Math.max(0, Math.min(this.place, (this.source?.length ?? 1) - 1));
    this.draw();
  }

  /** Selects another token, for which the model need not run again. */
  look(at: number) {
    if (at === this.at) return;
    this.at = at;
    this.draw();
  }

  /** Selects another token of the source. */
  lookAtSource(place: number) {
    if (place === this.place) return;
    this.place = place;
    this.draw();
  }

  /** Registers a function that draws after every change: at once, or before the next frame of the screen. */
  drawn(draw: () => void, later = true) {
    (later ? this.later : this.draws).push(draw);
  }

  private draw() {
    this.draws.forEach((draw) => draw());
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.later.forEach((draw) => draw());
    });
  }

  /** After how many tokens of the text the model predicts a next one: all but a final end token. */
  get steps(): number {
    const ended = this.source && this.tokens.length > 1 && this.tokens[this.tokens.length - 1] === this.run.task.end;
    return this.tokens.length - (ended ? 1 : 0);
  }

  /** The tokens that may be hidden: of a source, all but its end token. */
  get hideable(): number[] {
    return this.source ? this.source.slice(0, -1) : this.tokens;
  }

  text(tokens = this.tokens): string {
    return textOf(tokens, this.run);
  }

  /** How a token of the text is shown. The first of a target is ‹start›. */
  name(t: number): string {
    if (t >= this.tokens.length) return "?";
    return this.source && t === 0 ? "‹start›" : shown(this.run.vocabulary[this.tokens[t]]);
  }

  isOff(part: Part): boolean {
    return this.off.some((other) => other.join() === part.join());
  }

  /** Switch a part off, or on again. */
  toggle(part: Part) {
    this.update({
      off: this.isOff(part) ? this.off.filter((other) => other.join() !== part.join()) : [...this.off, part],
    });
  }
}
