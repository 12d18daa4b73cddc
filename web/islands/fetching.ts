/** Parts of pages, as the server renders them. */

/** Fetches a part of a page; what comes is our own server's HTML, whose scripts would not run here anyway. */
export async function part(address: string, signal: AbortSignal | null = null): Promise<DocumentFragment> {
  const response = await fetch(address, { headers: { Accept: "text/html" }, signal });
  if (!response.ok) throw new Error(`${response.status} ${address}`);
  const template = document.createElement("template");
  template.innerHTML = await response.text();
  return template.content;
}

/** What an element says, whatever the words of its times are: those change by themselves. */
export function said(element: Element): string {
  return element.outerHTML.replace(/>[^<]*<\/time>/g, "></time>");
}

/** Runs something again and again when asked to, never twice at a time, and not more often than every so many ms. */
export function paced(work: () => Promise<void>, pause: number): () => void {
  let [busy, due] = [false, false];
  const run = async (): Promise<void> => {
    busy = true;
    while (due) {
      due = false;
      // Where the server did not answer, the next wake-up asks again.
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
