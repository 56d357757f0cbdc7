// What run this is: its certificate or the plain word that it has none, its numbers, and in full its settings and hashes.
import { about } from "../architecture";
import { capital, count, h, prose, table } from "../html";
import type { Run } from "../run";

const NATS =
  "Losses and costs are in nats: a token to which the model gave the probability p costs −ln p. A cost of 0 is " +
  "certainty, and 0.69 is one chance in two.";

export function header(run: Run): HTMLElement {
  return h(
    "header",
    {},
    h("p", { class: "kicker" }, "apformer · a run, and its model at work"),
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
  const { members, seed } = run.settings.training;
  const member = members > 1 ? ` Shown is member ${run.member} of ${members}, seed ${seed + run.member}.` : "";
  const lost = run.diverged.map((one) => `${one.member} at step ${one.step.toLocaleString("en")}`).join(", ");
  const diverged = lost && ` Diverged, and left out: member ${lost}.`;
  return `${about(run)} that ${run.task.does}.${member}${diverged}`;
}

function certificate(run: Run): HTMLElement {
  const found = run.certificate;
  if (!found) {
    const why =
      run.missing.certificate ??
      (run.task.certifies
        ? "Nobody has asked this model every context there is: `apformer certify` does that."
        : "This task has no certificate.");
    return h(
      "div",
      { class: "certificate none", role: "note" },
      h("strong", {}, "No certificate"),
      h("span", {}, ...prose(why)),
    );
  }
  const claim = `${capital(found.claim)}.`;
  const margin = `smallest margin ${found.smallest_margin?.toPrecision(3) ?? "-"} in logits`;
  const rounding =
    found.certified && found.least_ratio
      ? `, at least ${found.least_ratio.toPrecision(3)} times what rounding can change at most`
      : "";
  const asked = `${count(found.contexts, "context")} enumerated, ${count(found.errors, "error")}, ${margin}${rounding}`;
  const words = found.certified ? "Proven" : found.screened ? "Screened" : "Not proven";
  return h(
    "div",
    { class: `certificate ${found.certified ? "yes" : "no"}`, role: "note" },
    h("strong", {}, words),
    h("span", {}, claim),
    h("span", { class: "asked" }, asked, by(found.witnesses ?? [])),
  );
}

/** Who computed the logits: nothing of a certificate that does not say it. */
function by(witnesses: { witness: string }[]): string {
  const names = witnesses.map((one) => one.witness);
  if (!names.length) return "";
  return `; computed by ${names.length > 1 ? names.join("; ") : `${names[0]} alone`}`;
}

function facts(run: Run): HTMLElement {
  const list: [string, string, string][] = [["parameters", run.parameters.toLocaleString("en"), ""], ...run.facts];
  const { steps, seed, members } = run.settings.training;
  list.push([
    "trained",
    count(run.step, "step"),
    `of ${steps.toLocaleString("en")}, seed ${seed}${members > 1 ? ` to ${seed + members - 1}` : ""}`,
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
        table(["what", "value"], [...hashes, ...environment, ...versions], [], "Hashes and versions"),
      ),
      h("div", {}, h("h3", {}, "Settings"), table(["flag", "of", "value"], rows, [], "Settings")),
    ),
  );
}

/** The fields of settings; those of a field that has its own bear both names, joined by a dot. */
function fields(flags: object): [string, unknown][] {
  return Object.entries(flags).flatMap(([name, value]): [string, unknown][] =>
    value && typeof value === "object" && !Array.isArray(value)
      ? fields(value).map(([own, inner]) => [`${name}.${own}`, inner])
      : [[name, value]],
  );
}

const code = (text: string) => h("code", {}, text);
