/** Times in the reader's zone; the exact one, in UTC too, on hover. */

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "short" });
const STEPS: readonly [number, Intl.RelativeTimeFormatUnit][] = [
  [86_400 * 365, "year"],
  [86_400 * 30, "month"],
  [86_400, "day"],
  [3_600, "hour"],
  [60, "minute"],
  [1, "second"],
];

/** Writes every `<time>` below a node in the reader's zone. */
export function showTimes(root: ParentNode): void {
  for (const element of root.querySelectorAll<HTMLTimeElement>("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    element.title = `${exact.format(at)} (${at.toISOString()})`;
    element.textContent = "relative" in element.dataset ? ago(at) : exact.format(at);
  }
}

function ago(at: Date): string {
  const seconds = (Date.now() - at.getTime()) / 1000;
  const [size, unit] = STEPS.find(([step]) => seconds >= step) ?? [1, "second"];
  return relative.format(-Math.round(seconds / size), unit);
}
