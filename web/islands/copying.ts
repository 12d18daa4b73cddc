/** Buttons that copy: shown only where a script can do it. */

const SHOWN_MS = 1500;

/** Enables every `[data-copy]` below a node. */
export function enableCopying(root: ParentNode): void {
  for (const button of root.querySelectorAll<HTMLButtonElement>("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", () => void copy(button));
  }
}

async function copy(button: HTMLButtonElement): Promise<void> {
  await write(button.dataset["copy"] ?? "");
  button.dataset["copied"] = "";
  setTimeout(() => delete button.dataset["copied"], SHOWN_MS);
}

/** The clipboard is for pages over HTTPS and on this machine; others select the text of a field of their own. */
async function write(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = Object.assign(document.createElement("textarea"), { value: text });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
