// What the reader has chosen, and what the model says to it; whoever draws is told of every change.
import { ablate } from "./ablate";
import { apply, type Output } from "./architecture";
import type { Params, Part, Run } from "./run";

export interface Changes {
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
  /** What is switched off, and which characters no other may read. */
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
    this.update({ tokens: [0], given: 1 }); // until something is typed that can be read
  }

  get cfg() {
    return this.run.settings.model;
  }

  get changed() {
    return this.off.length + this.hidden.size > 0;
  }

  /** Take on changes, ask the model, and have everything drawn that shows it. */
  update(changes: Changes) {
    Object.assign(this, changes);
    if (changes.tokens) this.hidden = new Set([...this.hidden].filter((t) => t < this.tokens.length));
    if (changes.off) this.current = changes.off.length ? ablate(this.params, changes.off) : this.params;
    if (changes.tokens) this.whole = apply(this.params, this.tokens, this.cfg);
    this.output = this.changed ? apply(this.current, this.tokens, this.cfg, this.hidden) : this.whole;
    this.at = Math.max(0, Math.min(this.at, this.tokens.length - 1));
    this.draw();
  }

  /** Look at another character, which changes nothing that the model says. */
  look(at: number) {
    if (at === this.at) return;
    this.at = at;
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

  text(tokens = this.tokens): string {
    return tokens.map((token) => this.run.vocabulary[token]).join("");
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
