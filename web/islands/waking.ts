/** When a build may have changed: a stream tells, and where the server has no place for one, a clock does. */

const POLL_MS = 2000;

/** What is called: again and again, at any time, also where nothing changed. */
export interface Wakes {
  /** The build itself may have changed. */
  build(): void;
  /** Its log may have grown. */
  lines(): void;
}

/** Calls until the returned function is called; a page that nobody sees holds no place among the server's readers. */
export function follow(address: string, wakes: Wakes): () => void {
  let close = document.hidden ? () => {} : open(address, wakes);
  const seen = (): void => {
    close();
    close = document.hidden ? () => {} : open(address, wakes);
  };
  document.addEventListener("visibilitychange", seen);
  return () => {
    document.removeEventListener("visibilitychange", seen);
    close();
  };
}

function open(address: string, wakes: Wakes): () => void {
  const source = new EventSource(address);
  let clock: ReturnType<typeof setInterval> | undefined;
  const both = (): void => {
    wakes.build();
    wakes.lines();
  };
  source.addEventListener("build", () => wakes.build());
  source.addEventListener("lines", () => wakes.lines());
  source.addEventListener("end", () => {
    source.close();
    both();
  });
  source.addEventListener("error", () => {
    // While it only connects anew, it goes on by itself.
    if (source.readyState === EventSource.CLOSED) clock ??= setInterval(both, POLL_MS);
  });
  return () => {
    source.close();
    clearInterval(clock);
  };
}
