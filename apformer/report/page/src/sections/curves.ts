// How the run was trained: loss against the Bayes floor, exact match and learning rate; of a population, bands.
import { count, figure, h, percent, table } from "../html";
import { lines, type Series } from "../plot";
import { tokenName, type Run } from "../run";
import { missing, section } from "./section";

export function curves(run: Run): HTMLElement {
  const title = "Training";
  const records = run.metrics?.filter((record) => record.loss !== null) ?? [];
  if (!records.length)
    return section(
      "curves",
      title,
      "How the model was trained.",
      missing(run.missing.metrics ?? "This run was not trained, so it has no curves."),
    );
  const series = (names: [string, string, string, boolean?][]): Series[] =>
    names
      .map(([key, name, colour, dots]) => ({
        name,
        colour,
        dots,
        points: records
          .filter((record) => numbers(record[key]).length)
          .map((record) => point(record.step, record[key])),
      }))
      .filter((one) => one.points.length);
  const members = run.settings.training.members;
  const unit = `nats per ${tokenName(run)}`;
  const smoothing = run.settings.options?.label_smoothing ?? 0;
  const charts = [
    lines({
      title: smoothing ? "Loss, of smoothed targets" : "Loss",
      x: "step",
      y: unit,
      log: true,
      series: series([
        ["loss", "training", "blue"],
        ["validation_loss", "validation", "orange", true],
      ]),
      floor: run.floor
        ? { name: `least possible on the validation rows, ${run.floor.nats.toFixed(4)}`, y: run.floor.nats }
        : undefined,
    }),
    records.some((record) => record.nats != null)
      ? lines({
          title: "Loss of plain targets",
          x: "step",
          y: unit,
          log: true,
          series: series([
            ["nats", "training", "blue"],
            ["validation_nats", "validation", "orange", true],
          ]),
        })
      : null,
    run.task.judges && records.some((record) => record.exact != null)
      ? lines({
          title: "Exact match",
          x: "step",
          y: `${run.task.judges} right`,
          share: true,
          series: series([
            ["exact", "training", "blue"],
            ["validation_exact", "validation", "orange", true],
          ]),
        })
      : null,
    records.some((record) => record.learning_rate != null)
      ? lines({
          title: "Learning rate",
          x: "step",
          y: "",
          series: series([["learning_rate", "learning rate", "green"]]),
        })
      : null,
    checkpoints(records, run),
  ];
  const smoothed = smoothing
    ? ` Of each target ${percent(smoothing, 0)} is spread over the whole vocabulary, and the best checkpoint is chosen by that ` +
      "loss: the loss of the plain targets may rise while translations become better."
    : "";
  const spread =
    members > 1
      ? ` Lines are the median of ${count(members, "member")}, bands reach from the least to the greatest.`
      : "";
  const floor = run.floor ? ` ${run.floor.why} Training rows are other rows, so their line may lie below it.` : "";
  return section(
    "curves",
    title,
    `How the model was trained.${floor}${smoothed}${spread}`,
    h("div", { class: "charts" }, ...charts.filter((chart): chart is HTMLElement => chart !== null)),
  );
}

/** The records that have a validation: those of the checkpoints. */
function checkpoints(records: Record<string, any>[], run: Run): HTMLElement | null {
  const saved = records.filter((record) => numbers(record.validation_loss).length).slice(-8);
  if (!saved.length) return null;
  const exact = run.task.judges && saved.some((record) => record.validation_exact != null);
  const rows = saved.map((record) => [
    record.step.toLocaleString("en"),
    point(0, record.validation_loss).y.toFixed(4),
    ...(exact ? [percent(point(0, record.validation_exact).y)] : []),
    `${Math.round(record.seconds).toLocaleString("en")} s`,
  ]);
  const head = ["step", "loss", ...(exact ? [`${run.task.judges} right`] : []), "time"];
  return figure("Checkpoints", "on validation rows", null, table(head, rows, [1, 2, 3], "Checkpoints"));
}

type Measured = number | null | (number | null)[];

/** What was measured of all members; null is the loss of one that has failed. */
const numbers = (value: Measured): number[] => [value].flat().filter((number) => number != null);

/** One number, or the median of all members between their least and greatest. */
function point(step: number, value: Measured) {
  const values = numbers(value).sort((a, b) => a - b);
  const middle = values.length / 2;
  return {
    x: step,
    low: values[0],
    y: (values[Math.floor(middle - 0.5)] + values[Math.floor(middle)]) / 2,
    high: values[values.length - 1],
  };
}
