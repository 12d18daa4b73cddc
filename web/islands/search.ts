/** Search as you type, at the top of every page. Without scripts, the form leads to the page of the search. */

const DELAY_MS = 120;
const MAX_PER_KIND = 6;

/** A search result; see `wire/search.py`. */
interface Found {
  kind: "model" | "version" | "build" | "target" | "publisher" | "owner";
  name: string;
  detail: string;
  model: string | null;
  number: number | null;
}

/** Enables the form `[data-search]`. */
export function enableSearch(root: Document): void {
  const form = root.querySelector<HTMLFormElement>("form[data-search]");
  const input = form?.querySelector<HTMLInputElement>("input");
  if (!form || !input) return;
  new Search(form, input).listen();
}

/** A search field with a list of results (the ARIA combobox pattern). */
class Search {
  private readonly list = document.createElement("ul");
  private readonly status = document.createElement("p");
  private request: AbortController | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private active = -1;

  constructor(
    private readonly form: HTMLFormElement,
    private readonly input: HTMLInputElement,
  ) {
    Object.assign(this.list, { id: "found", className: "found", role: "listbox", hidden: true });
    this.list.setAttribute("aria-label", "Search results");
    Object.assign(this.status, { className: "visually-hidden", role: "status" });
    form.append(this.list, this.status);
    for (const [name, value] of Object.entries({ role: "combobox", "aria-controls": "found", "aria-expanded": "false", "aria-autocomplete": "list" }))
      input.setAttribute(name, value);
  }

  listen(): void {
    this.input.addEventListener("input", () => this.later());
    this.input.addEventListener("focus", () => this.later());
    this.input.addEventListener("keydown", (event) => this.onKey(event));
    this.form.addEventListener("focusout", (event) => {
      if (!this.form.contains(event.relatedTarget as Node | null)) this.close();
    });
    // Otherwise the field would lose the focus and the list would close before the click.
    this.list.addEventListener("mousedown", (event) => event.preventDefault());
    this.list.addEventListener("click", (event) => {
      if (event.target instanceof Element) follow(event.target.closest<HTMLElement>("[data-to]"), event.ctrlKey || event.metaKey);
    });
  }

  private later(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.ask(this.input.value.trim()), DELAY_MS);
  }

  private async ask(text: string): Promise<void> {
    this.request?.abort();
    if (!text) return this.close();
    this.request = new AbortController();
    try {
      const query = new URLSearchParams({ q: text, limit: String(MAX_PER_KIND) });
      const answer = await fetch(`/api/v1/search?${query}`, { signal: this.request.signal });
      if (answer.ok) this.show(text, ((await answer.json()) as { hits: Found[] }).hits);
    } catch {
      // Superseded by further typing, or the server is unavailable; the form still works and shows the error.
    }
  }

  private show(text: string, hits: readonly Found[]): void {
    if (document.activeElement !== this.input) return;
    const chosen = this.options[this.active]?.dataset["to"];
    this.list.replaceChildren(...hits.map((hit, index) => option(hit, text, index)));
    this.choose(this.options.findIndex((item) => item.dataset["to"] === chosen));
    this.status.textContent = hits.length ? `${hits.length} found` : "Nothing found";
    this.open(hits.length > 0);
  }

  private open(yes: boolean): void {
    this.list.hidden = !yes;
    this.input.setAttribute("aria-expanded", String(yes));
  }

  private close(): void {
    clearTimeout(this.timer);
    this.request?.abort();
    this.choose(-1);
    this.status.textContent = "";
    this.open(false);
  }

  private onKey(event: KeyboardEvent): void {
    if (event.isComposing) return;
    const chosen = this.options[this.active];
    if (event.key === "ArrowDown") this.move(event, 1);
    else if (event.key === "ArrowUp") this.move(event, -1);
    else if (event.key === "Enter" && !this.list.hidden && chosen) {
      event.preventDefault();
      follow(chosen, event.ctrlKey || event.metaKey);
    } else if (event.key === "Escape" && !this.list.hidden) {
      event.preventDefault(); // the first Escape closes the list, the second empties the field
      this.close();
    }
  }

  private move(event: KeyboardEvent, by: number): void {
    if (this.list.hidden) return this.later();
    event.preventDefault();
    // One position more than there are options: the text as typed.
    const positions = this.options.length + 1;
    this.choose(((this.active + 1 + by + positions) % positions) - 1);
  }

  private get options(): HTMLElement[] {
    return [...this.list.children] as HTMLElement[];
  }

  /** Makes an option the active one; -1 for none. */
  private choose(index: number): void {
    this.active = index;
    this.options.forEach((item, at) => item.setAttribute("aria-selected", String(at === index)));
    const current = this.options[index];
    if (current) this.input.setAttribute("aria-activedescendant", current.id);
    else this.input.removeAttribute("aria-activedescendant");
    current?.scrollIntoView({ block: "nearest" });
  }
}

/** Options contain no links, which screen readers would not announce. */
function option(hit: Found, text: string, index: number): HTMLElement {
  const item = document.createElement("li");
  Object.assign(item, { id: `found-${index}`, role: "option" });
  item.setAttribute("aria-selected", "false");
  item.dataset["to"] = address(hit);
  item.append(marked(hit.name, text), detail(hit));
  return item;
}

/** The page of what was found. Names of models are made of letters, digits and . _ - around one slash. */
function address(hit: Found): string {
  const name = encodeURIComponent(hit.name);
  if (hit.kind === "version") return `/models/${hit.model}/versions/${hit.number}`;
  if (hit.kind === "build") return `/builds/${name}`;
  if (hit.kind === "target") return `/targets?target=${name}`;
  if (hit.kind === "publisher") return `/versions?publisher=${name}`;
  if (hit.kind === "owner") return `/${hit.detail === "owns models" ? "" : "versions"}?label=owner%3D${name}`;
  return `/models/${hit.name}`;
}

function follow(item: HTMLElement | null, elsewhere: boolean): void {
  const address = item?.dataset["to"];
  if (!address) return;
  if (elsewhere) window.open(address, "_blank", "noopener");
  else location.assign(address);
}

function marked(name: string, text: string): HTMLElement {
  const shown = document.createElement("span");
  const at = name.toLowerCase().indexOf(text.toLowerCase());
  const mark = document.createElement("mark");
  mark.textContent = name.slice(at, at + text.length);
  if (at < 0) shown.textContent = name;
  else shown.append(name.slice(0, at), mark, name.slice(at + text.length));
  return shown;
}

function detail(hit: Found): HTMLElement {
  const shown = document.createElement("small");
  shown.textContent = [hit.kind === "model" ? "" : hit.kind, hit.detail].filter(Boolean).join(" · ");
  return shown;
}
