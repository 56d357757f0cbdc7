// What run this is: its certificate or the plain word that it has none, its numbers, and in full its settings and hashes.
import { count, h, percent, rounded, table } from "../html";
import { isLanguage, type Run } from "../run";

export function header(run: Run): HTMLElement {
  return h(
    "header",
    {},
    h("p", { class: "kicker" }, "apformer · a run, and its model at work"),
    h("h1", {}, run.name),
    h("p", { class: "about" }, about(run)),
    certificate(run),
    facts(run),
    details(run),
  );
}

/** The run in one sentence. */
function about(run: Run): string {
  const { model, training, data } = run.settings;
  const kind = {
    recurrent: () =>
      `${model.cell === "gru" ? "A GRU" : `An ${model.cell.toUpperCase()}`} of ${count(model.n_layers, "layer")}`,
    decoder: () => `A transformer of ${count(model.n_layers, "layer")} with ${count(model.n_heads, "head")} each`,
    "encoder-decoder": () =>
      `A transformer with an encoder of ${count(model.n_encoder_layers, "layer")}, a decoder of ` +
      `${model.n_decoder_layers}, and ${count(model.n_heads, "head")} in each attention,`,
  }[run.architecture]();
  const what = {
    progressions: `continues arithmetic progressions of ${data.digits}-digit terms`,
    wide: `continues arithmetic progressions of terms of any width, trained on up to ${data.digits} digits`,
    text: `writes text like ${file(data.text)}`,
    pairs: data.source
      ? `translates what is like ${file(data.source)} to what is like ${file(data.target)}`
      : `translates numbers up to ${data.largest?.toLocaleString("en")} in words from “${data.from_language}” to “${data.to_language}”`,
  }[run.task];
  const member =
    training.members > 1
      ? ` Shown is member ${run.member} of ${training.members}, seed ${training.seed + run.member}.`
      : "";
  return `${kind} that ${what}${run.circuit ? ", its weights written by hand" : ""}.${member}`;
}

const file = (path: unknown) => String(path).split("/").pop()!;

function certificate(run: Run): HTMLElement {
  const found = run.certificate;
  if (!found) {
    const why =
      run.missing.certificate ??
      (isLanguage(run)
        ? "Of a language nobody knows what would be right."
        : "Nobody has asked this model every context there is: apformer certify does.");
    return h("div", { class: "certificate none", role: "note" }, h("strong", {}, "No certificate"), h("span", {}, why));
  }
  const claim = found.claim[0].toUpperCase() + found.claim.slice(1) + ".";
  const margin = `smallest margin ${found.smallest_margin.toPrecision(3)} in logits`;
  const asked = `${count(found.contexts, "context")} enumerated, ${count(found.errors, "error")}, ${margin}`;
  const words = found.certified ? "Certified" : "Not certified";
  return h(
    "div",
    { class: `certificate ${found.certified ? "yes" : "no"}`, role: "note" },
    h("strong", {}, words),
    h("span", {}, claim),
    h("span", { class: "asked" }, asked),
  );
}

function facts(run: Run): HTMLElement {
  const found = run.evaluation;
  const list: [string, string, string?][] = [["parameters", run.parameters.toLocaleString("en")]];
  if (found && "exact_free_running" in found) {
    const of = "terms" in found ? `of ${count(found.terms, "held-out term")}` : "of held-out terms";
    list.push(["exact match, free-running", percent(found.exact_free_running), of]);
    list.push(["exact match, teacher-forced", percent(found.exact_teacher_forced), of]);
  }
  if (found && "excess" in found)
    list.push([
      "loss above the best possible",
      rounded(found.excess),
      `${rounded(found.nats_per_char)} − ${rounded(found.bayes_nats_per_char)} nats per character`,
    ]);
  if (found && "perplexity" in found)
    list.push(
      ["nats per token", rounded(found.nats_per_token), `perplexity ${found.perplexity.toFixed(2)}`],
      ["bits per character", rounded(found.bits_per_character)],
    );
  if (found && "bleu" in found) {
    const exact = `of ${count(found.sentences, "test sentence")}, by a search with ${count(found.beams, "beam")}`;
    list.push(["BLEU", found.bleu.toFixed(2), found.bleu_signature.split("|").join(" | ")]);
    list.push(["chrF", found.chrf.toFixed(2), found.chrf_signature.split("|").join(" | ")]);
    list.push(["exact translations", percent(found.exact), exact]);
  }
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
    Object.entries(flags ?? {}).map(([name, value]) => [name, part, String(value ?? "–")]),
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

const code = (text: string) => h("code", {}, text);
