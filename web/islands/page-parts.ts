/** Parts of pages, rendered by the server. */

/** Fetches a part of a page. It is our own server's HTML, and its scripts do not run. */
export async function fetchPart(address: string, signal: AbortSignal | null = null): Promise<DocumentFragment> {
  const response = await fetch(address, { headers: { Accept: "text/html" }, signal });
  if (!response.ok) throw new Error(`${response.status} ${address}`);
  const template = document.createElement("template");
  template.innerHTML = await response.text();
  return template.content;
}

/** An element's content without its relative times, which change by themselves. */
export function signature(element: Element): string {
  return element.outerHTML.replace(/>[^<]*<\/time>/g, "></time>");
}

/** Makes an element like a fresh one without replacing what is alike, so that animations and focus go on. */
export function morph(old: Element, fresh: Element): void {
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !(name === "open" && old.tagName === "DETAILS")) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  for (const [place, node] of after.entries()) {
    const was = before[place];
    if (!was) old.append(node);
    else if (was instanceof Element && node instanceof Element && was.tagName === node.tagName) morph(was, node);
    else if (was.nodeType !== node.nodeType || was instanceof Element) was.replaceWith(node);
    else if (was.nodeValue !== node.nodeValue) was.nodeValue = node.nodeValue;
  }
  for (const node of before.slice(after.length)) node.remove();
}

/** Returns a function that runs work on demand, never concurrently and at most once per pause (ms). */
export function throttle(work: () => Promise<void>, pause: number): () => void {
  let [busy, due] = [false, false];
  const run = async (): Promise<void> => {
    busy = true;
    while (due) {
      due = false;
      // If the server does not answer, the next call retries.
      await work().catch(() => undefined);
      await new Promise((done) => setTimeout(done, pause));
    }
    busy = false;
  };
  return () => {
    due = true;
    if (!busy) void run();
  };
}
