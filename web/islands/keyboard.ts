/** Keys of every page: `/` searches, `j` and `k` go through a list's rows, `?` shows them all. */

const ROWS = "[data-rows] > *";
const KEYS: readonly (readonly [string, string])[] = [
  ["/", "Search"],
  ["j", "Next row of a list"],
  ["k", "Previous row"],
  ["Enter", "Open the row"],
  ["?", "Show these keys"],
  ["Esc", "Close what is open"],
];

export function enableKeyboard(root: Document): void {
  root.querySelector("[data-keys]")?.removeAttribute("hidden");
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || root.querySelector("dialog[open]")) return;
    const action = { "/": focusSearch, j: () => moveBy(root, 1), k: () => moveBy(root, -1), "?": () => showKeys(root) }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
}

function focusSearch(): void {
  const field = document.querySelector<HTMLInputElement>("form[data-search] input");
  field?.focus();
  field?.select();
}

/** Moves the focus to the first link of another row; the link's own key opens it. */
function moveBy(root: Document, by: number): void {
  const links = [...root.querySelectorAll(ROWS)].flatMap((row) => row.querySelector<HTMLAnchorElement>("a[href]") ?? []);
  const at = links.findIndex((link) => link.closest(ROWS)?.contains(root.activeElement));
  const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by];
  next?.focus({ preventScroll: true });
  next?.closest(ROWS)?.scrollIntoView({ block: "nearest" });
}

function showKeys(root: Document): void {
  const dialog = root.createElement("dialog");
  dialog.setAttribute("aria-label", "Keyboard shortcuts");
  const title = Object.assign(root.createElement("h2"), { textContent: "Keyboard shortcuts" });
  const list = Object.assign(root.createElement("dl"), { className: "keys" });
  for (const [key, what] of KEYS) {
    const name = root.createElement("dt");
    name.append(Object.assign(root.createElement("kbd"), { textContent: key }));
    list.append(name, Object.assign(root.createElement("dd"), { textContent: what }));
  }
  const close = Object.assign(root.createElement("button"), { className: "quiet", textContent: "Close" });
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  dialog.append(title, list, close);
  root.body.append(dialog);
  dialog.showModal();
}
