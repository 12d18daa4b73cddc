/** Times in the reader's zone; the exact one, in UTC too, on hover. */

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const PAUSE_MS = 5000;
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
    write(element, "relative" in element.dataset ? ago(at) : exact.format(at));
  }
}

/** Lets "7 s ago" go on while somebody looks, in what comes later too. */
export function keepTimes(root: Document): void {
  const again = (): void => {
    if (root.hidden) return;
    for (const element of root.querySelectorAll<HTMLTimeElement>("time[data-relative]")) {
      const at = new Date(element.dateTime);
      if (!Number.isNaN(at.getTime())) write(element, ago(at));
    }
  };
  setInterval(again, PAUSE_MS);
  root.addEventListener("visibilitychange", again);
}

/** What says the same stays as it is: somebody may have chosen it. */
function write(element: HTMLElement, words: string): void {
  if (element.textContent !== words) element.textContent = words;
}

function ago(at: Date): string {
  const seconds = Math.max(0, (Date.now() - at.getTime()) / 1000);
  const step = STEPS.find(([size]) => seconds >= size);
  return step ? `${(seconds / step[0]).toFixed(0)} ${step[1]} ago` : `${seconds.toFixed(1)} s ago`;
}
