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
