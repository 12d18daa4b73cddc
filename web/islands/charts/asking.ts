/** What the form asks for, as an address; and parts of the page that answers it. */

/** What is left out of addresses: what they say without it. */
const USUAL = [
  ["x", "version"],
  ["y", "value"],
  ["limit", "200"],
  ["subject", "artifact"],
] as const;
/** Stands for every metric. */
const EVERY = "*";
/** What scripts add to an address; the server's answer is the same with and without it. */
const OURS = ["zoom", "point"];

/** The address that a form asks for; a part of the x axis that was chosen stays where the axis does. */
export function addressOf(form: HTMLFormElement): URL {
  const before = new URLSearchParams(location.search);
  const given = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (typeof value === "string" && value !== "") given.append(name, value);
  for (const [name, usual] of USUAL) if (given.get(name) === usual) given.delete(name);
  if (boxes(form, "target").every((box) => box.checked)) given.delete("target");
  const metrics = boxes(form, "metric");
  if (metrics.length > 1 && metrics.every((box) => box.checked)) given.set("metric", EVERY);
  const axisStays = given.get("x") === before.get("x");
  for (const name of OURS)
    if (name !== "zoom" || axisStays) for (const value of before.getAll(name)) given.append(name, value);
  return withQuery(given);
}

/** The current address with another query. */
export function withQuery(given: URLSearchParams): URL {
  return new URL(`${location.pathname}${given.size ? `?${given}` : ""}${location.hash}`, location.href);
}

/** What an address asks the server for. */
export function question(address: string): string {
  const given = new URL(address).searchParams;
  for (const name of OURS) given.delete(name);
  return given.toString();
}

/** Makes a form say what another one says; what its reader stands on stays. */
export function mirror(from: HTMLFormElement, to: HTMLFormElement): void {
  for (const box of to.querySelectorAll<HTMLInputElement>('input[type="checkbox"]')) {
    const same = boxes(from, box.name).find((other) => other.value === box.value);
    if (same) box.checked = same.checked;
  }
  for (const field of to.querySelectorAll<HTMLInputElement>('input[type="number"]'))
    field.value = from.querySelector<HTMLInputElement>(`input[name="${field.name}"]`)?.value ?? "";
  for (const choice of to.querySelectorAll("select")) {
    const same = from.querySelector<HTMLSelectElement>(`select[name="${choice.name}"]`);
    if (!same) continue;
    const chosen = same.selectedIndex;
    choice.replaceChildren(...same.children);
    choice.selectedIndex = chosen;
  }
  const [told, tells] = [to.querySelector("summary"), from.querySelector("summary")];
  if (told && tells) told.textContent = tells.textContent;
}

function boxes(form: HTMLFormElement, name: string): HTMLInputElement[] {
  return [...form.querySelectorAll<HTMLInputElement>('input[type="checkbox"]')].filter((box) => box.name === name);
}
