// Training: the loss and its lowest possible value, exact match and learning rate; bands for a population.
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
      "What was measured during training.",
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
      title: smoothing ? "Loss with smoothed targets" : "Loss",
      x: "step",
      y: unit,
      log: true,
      series: series([
        ["loss", "training", "blue"],
        ["validation_loss", "validation", "orange", true],
      ]),
      floor: run.floor
        ? { name: `lowest possible on validation rows, ${run.floor.nats.toFixed(4)}`, y: run.floor.nats }
        : undefined,
    }),
    records.some((record) => record.nats != null)
      ? lines({
          title: "Loss with plain targets",
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
    ? ` Label smoothing spreads ${percent(smoothing, 0)} of each target over the whole vocabulary. This loss chooses the best ` +
      "checkpoint. The loss with plain targets may rise while translations improve."
    : "";
  const spread =
    members > 1 ? ` Lines show the median of ${count(members, "member")}, bands the range from lowest to highest.` : "";
  const floor = run.floor
    ? ` ${run.floor.why} The training loss may lie below the dashed line, since it is measured on other rows.`
    : "";
  return section(
    "curves",
    title,
    `What was measured during training.${floor}${smoothed}${spread}`,
    h("div", { class: "charts" }, ...charts.filter((chart): chart is HTMLElement => chart !== null)),
  );
}

/** A table of the records with a validation loss, which are those of the checkpoints. */
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

/** The values of all members; null for a member that has failed. */
const numbers = (value: Measured): number[] => [value].flat().filter((number) => number != null);

/** A number, or the median of all members, with the lowest and the highest. */
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
