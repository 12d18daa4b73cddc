/** Menus (`details[data-menu]`) close on Escape, and when something else is used. */

export function closeMenus(root: Document): void {
  root.addEventListener("click", (event) => closeOthers(root, event.target));
  root.addEventListener("focusin", (event) => closeOthers(root, event.target));
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of opened(root)) {
      menu.open = false;
      if (menu.contains(root.activeElement)) menu.querySelector("summary")?.focus();
    }
  });
}

function opened(root: Document): HTMLDetailsElement[] {
  return [...root.querySelectorAll<HTMLDetailsElement>("details[data-menu][open]")];
}

function closeOthers(root: Document, target: EventTarget | null): void {
  for (const menu of opened(root)) if (!(target instanceof Node && menu.contains(target))) menu.open = false;
}
