// What the reader has chosen, and what the model says to it; whoever draws is told of every change.
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
  /** The text: what was given, then what the model wrote; `at` is the character that is looked at. */
  tokens: number[] = [];
  given = 0;
  at = 0;
  /** Of a translator the source, and its token that is looked at; the text then begins with an end, and is the target. */
  source?: number[];
  place = 0;
  /** What is switched off, and which characters, of a translator those of the source, no other may read. */
  off: Part[] = [];
  hidden = new Set<number>();
  /** The parameters without what is switched off, and what they say; `whole` is what all of them say. */
  current: Params;
  output!: Output;
  whole!: Output;
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
    this.update({ tokens: [translates ? run.task.end! : 0], given: 1, source }); // until something is typed that can be read
  }

  get cfg() {
    return this.run.model;
  }

  get changed() {
    return this.off.length + this.hidden.size > 0;
  }

  /** Take on changes, ask the model, and have everything drawn that shows it. */
  update(changes: Changes) {
    Object.assign(this, changes);
    if (changes.tokens) this.hidden = new Set([...this.hidden].filter((t) => t < this.hideable.length));
    if (changes.off) this.current = changes.off.length ? ablate(this.params, changes.off) : this.params;
    if (changes.tokens) this.whole = apply(this.params, this.tokens, this.run, undefined, this.source);
    this.output = this.changed ? apply(this.current, this.tokens, this.run, this.hidden, this.source) : this.whole;
    this.at = Math.max(0, Math.min(this.at, this.steps - 1));
    this.place = Math.max(0, Math.min(this.place, (this.source?.length ?? 1) - 1));
    this.draw();
  }

  /** Look at another character, which changes nothing that the model says. */
  look(at: number) {
    if (at === this.at) return;
    this.at = at;
    this.draw();
  }

  /** Look at another token of the source. */
  lookAtSource(place: number) {
    if (place === this.place) return;
    this.place = place;
    this.draw();
  }

  /** Have something drawn after every change: at once, or before the next picture of the screen. */
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

  /** After how many tokens of the text something is said: all but an end. */
  get steps(): number {
    const ended = this.source && this.tokens.length > 1 && this.tokens[this.tokens.length - 1] === this.run.task.end;
    return this.tokens.length - (ended ? 1 : 0);
  }

  /** The tokens that may be hidden: of a source all but its end. */
  get hideable(): number[] {
    return this.source ? this.source.slice(0, -1) : this.tokens;
  }

  text(tokens = this.tokens): string {
    return textOf(tokens, this.run);
  }

  /** How a token of the text is written: that which begins a target says so. */
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
