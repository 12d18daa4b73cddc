/** Copy buttons, shown only with scripts. */

const SHOWN_MS = 1500;
const enabled = new WeakSet<HTMLButtonElement>();

/** Enables every `[data-copy]` below a node. */
export function enableCopyButtons(root: ParentNode): void {
  for (const button of root.querySelectorAll<HTMLButtonElement>("button[data-copy]")) {
    button.hidden = false;
    if (enabled.has(button)) continue;
    enabled.add(button);
    button.addEventListener("click", () => void copy(button));
  }
}

async function copy(button: HTMLButtonElement): Promise<void> {
  await write(button.dataset["copy"] ?? "");
  button.dataset["copied"] = "";
  setTimeout(() => delete button.dataset["copied"], SHOWN_MS);
}

/** The clipboard API needs HTTPS or localhost; elsewhere the text is copied from a temporary field. */
async function write(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = Object.assign(document.createElement("textarea"), { value: text });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
