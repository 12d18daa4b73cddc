/** The publish page: a preview of the spec while it is edited. */

const PAUSE_MS = 400;
const ENDED = "Your session has ended. Publish will ask for a token; nothing you typed is lost.";
const UNKNOWN = "The server did not answer, so the spec is not checked. It will be checked when you publish.";

const form = document.querySelector<HTMLFormElement>("form[data-publish]");
const outcome = document.querySelector<HTMLElement>("[data-outcome]");
if (form && outcome) watch(form, outcome);

/** Checks the spec when typing pauses, and links errors to their lines. */
function watch(form: HTMLFormElement, outcome: HTMLElement): void {
  const spec = form.elements.namedItem("spec") as HTMLTextAreaElement;
  let pause: number | undefined;
  let request = new AbortController();
  form.addEventListener("input", () => {
    clearTimeout(pause);
    request.abort();
    request = new AbortController();
    const { signal } = request;
    pause = window.setTimeout(() => void check(form, outcome, signal), PAUSE_MS);
  });
  outcome.addEventListener("click", (event) => {
    const line = (event.target as HTMLElement).closest<HTMLElement>("[data-line]")?.dataset["line"];
    if (line) select(spec, Number(line));
  });
}

async function check(form: HTMLFormElement, outcome: HTMLElement, signal: AbortSignal): Promise<void> {
  outcome.setAttribute("aria-busy", "true");
  try {
    const body = new URLSearchParams([...new FormData(form)].map(([name, value]) => [name, String(value)]));
    const response = await fetch(form.dataset["check"] ?? "", { method: "POST", body, signal });
    if (response.ok) outcome.innerHTML = await response.text();
    else showNote(outcome, response.status === 401 || response.status === 403 ? ENDED : UNKNOWN);
  } catch {
    if (signal.aborted) return; // a newer check is under way
    showNote(outcome, UNKNOWN);
  }
  outcome.removeAttribute("aria-busy");
}

function showNote(outcome: HTMLElement, text: string): void {
  outcome.replaceChildren(Object.assign(document.createElement("p"), { className: "note", textContent: text }));
}

/** Selects a line of a field and scrolls to it. */
function select(field: HTMLTextAreaElement, line: number): void {
  const lines = field.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  field.focus();
  field.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
  field.scrollTop = (field.scrollHeight / lines.length) * Math.max(0, line - 4);
}
