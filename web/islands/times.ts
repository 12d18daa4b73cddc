/** Times in the reader's zone; the exact one, in UTC too, on hover. */

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
/** The same words as the server's (`filters.span`): what is longer or shorter would move the page. */
const STEPS: readonly [number, string][] = [
  [86_400 * 365, "y"],
  [86_400 * 30, "mo"],
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
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
  const seconds = Math.max(0, (Date.now() - at.getTime()) / 1000);
  const step = STEPS.find(([size]) => seconds >= size);
  return step ? `${(seconds / step[0]).toFixed(0)} ${step[1]} ago` : `${seconds.toFixed(1)} s ago`;
}
