// The head of the page: the run in a sentence, its certificate or why it has none, its figures, settings and hashes.
import { about } from "../architecture";
import { capital, count, h, prose, table } from "../html";
import type { Run } from "../run";

const NATS =
  "Losses and costs are in nats. If the model gave a token the probability p, the token costs −ln p: 0 if the model " +
  "was certain of it, and 0.69 if p was 50 %.";

export function header(run: Run): HTMLElement {
  return h(
    "header",
    {},
    h("p", { class: "kicker" }, "apformer · a training run and its model"),
    h("h1", {}, run.name),
    h("p", { class: "about" }, sentence(run)),
    certificate(run),
    facts(run),
    h("p", { class: "note" }, NATS),
    details(run),
  );
}

/** The run in one sentence. */
function sentence(run: Run): string {
  const { members } = run.settings.training;
  const member = members > 1 ? ` This page shows member ${run.member} of ${members}, seed ${run.seed}.` : "";
  const lost = run.diverged.map((one) => `${one.member} at step ${one.step.toLocaleString("en")}`).join(", ");
  const diverged = lost && ` Diverged and left out: member ${lost}.`;
  return `${about(run)} that ${run.task.does}.${member}${diverged}`;
}

function certificate(run: Run): HTMLElement {
  const found = run.certificate;
  if (!found) {
    const why =
      run.missing.certificate ??
      (run.task.certifies
        ? "Run `apformer certify` to check the model on every context, that is, on every input that a term can depend on."
        : "No proof exists for this task.");
    return h(
      "div",
      { class: "certificate none", role: "note" },
      h("strong", {}, "No certificate"),
      h("span", {}, ...prose(why)),
    );
  }
  const claim = `${capital(found.claim)}.`;
  const margin = `smallest margin ${found.smallest_margin?.toPrecision(3) ?? "-"} (right logit minus the largest other)`;
  const rounding =
    found.certified && found.least_ratio
      ? `, every margin at least ${found.least_ratio.toPrecision(3)} times the bound on its rounding error`
      : "";
  const asked = `${count(found.contexts, "context")} checked, ${count(found.errors, "error")}, ${margin}${rounding}`;
  const words = found.certified ? "Proven" : found.screened ? "Screened" : "Not proven";
  return h(
    "div",
    { class: `certificate ${found.certified ? "yes" : "no"}`, role: "note" },
    h("strong", {}, words),
    h("span", {}, claim),
    h("span", { class: "asked" }, asked, by(found.witnesses ?? [])),
  );
}

/** What computed the logits; empty if the certificate does not say. */
function by(witnesses: { witness: string }[]): string {
  const names = witnesses.map((one) => one.witness);
  if (!names.length) return "";
  return `; computed by ${names.join(" and by ")}`;
}

function facts(run: Run): HTMLElement {
  const list: [string, string, string][] = [["parameters", run.parameters.toLocaleString("en"), ""], ...run.facts];
  list.push([
    "best checkpoint",
    `step ${run.step.toLocaleString("en")}`,
    `of ${run.settings.training.steps.toLocaleString("en")}, seed ${run.seed}`,
  ]);
  return h(
    "dl",
    { class: "facts" },
    ...list.map(([name, value, note]) =>
      h("div", {}, h("dt", {}, name), h("dd", {}, value, note ? h("small", {}, note) : null)),
    ),
  );
}

function details(run: Run): HTMLElement {
  const rows = Object.entries(run.settings).flatMap(([part, flags]) =>
    fields(flags ?? {}).map(([name, value]) => [name, part, String(value ?? "–")]),
  );
  const versions = Object.entries(run.versions).map(([name, version]) => [name, version ?? "not installed"]);
  const hashes = [
    ["parameters (sha256)", code(run.parameters_sha256)],
    ...Object.entries(run.source).map(([name, value]) => [
      `data: ${name}`,
      code(typeof value === "object" ? JSON.stringify(value) : String(value)),
    ]),
  ];
  const environment = run.certificate
    ? [
        [
          "certificate",
          `${run.certificate.dtype}, ${run.certificate.matmul_precision} matrix products, ${run.certificate.device}, ${run.certificate.seconds} s`,
        ],
      ]
    : [];
  return h(
    "details",
    { class: "more" },
    h("summary", {}, "Settings, versions and hashes"),
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        {},
        h("h3", {}, "Hashes and versions"),
        table(["name", "value"], [...hashes, ...environment, ...versions], [], "Hashes and versions"),
      ),
      h("div", {}, h("h3", {}, "Settings"), table(["flag", "group", "value"], rows, [], "Settings")),
    ),
  );
}

/** The fields of settings. A nested field has both names, joined by a dot. */
function fields(flags: object): [string, unknown][] {
  return Object.entries(flags).flatMap(([name, value]): [string, unknown][] =>
    value && typeof value === "object" && !Array.isArray(value)
      ? fields(value).map(([own, inner]) => [`${name}.${own}`, inner])
      : [[name, value]],
  );
}

const code = (text: string) => h("code", {}, text);
