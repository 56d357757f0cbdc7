// A list in groups that the user chooses: the largest group open, the first few of each shown.
import { choice, h } from "../html";

const SHOWN = 12;

/** names: the ways to group. groupOf: the group of an item. draw: makes a table of the items that are shown. */
export function grouped<T>(
  list: T[],
  names: string[],
  groupOf: (by: string, one: T) => string,
  draw: (shown: T[]) => HTMLElement,
): HTMLElement[] {
  const frame = h("div", { class: "groups" });
  const rows = (group: T[]) => {
    const more = group.length > SHOWN ? h("p", { class: "note" }, `and ${group.length - SHOWN} more`) : null;
    return h("div", {}, draw(group.slice(0, SHOWN)), more);
  };
  const group = (by: string) => {
    const groups = new Map<string, T[]>();
    for (const one of list) groups.set(groupOf(by, one), [...(groups.get(groupOf(by, one)) ?? []), one]);
    const sorted = [...groups].sort((a, b) => b[1].length - a[1].length);
    frame.replaceChildren(
      ...sorted.map(([name, members], i) =>
        h("details", { class: "more", open: i === 0 }, h("summary", {}, `${name}: ${members.length}`), rows(members)),
      ),
    );
  };
  group(names[0]);
  return [choice("Group by", names, (i) => group(names[i])), frame];
}
