// The page: reads the run that Python put into it, and draws its sections.
import { ablate, measure } from "./ablate";
import { apply } from "./architecture";
import { readParams, readRun } from "./run";

// For tests, which run the model without a page.
Object.assign(globalThis, { apformer: { ablate, apply, measure, readParams, readRun } });
