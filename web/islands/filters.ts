/** Keeps filters that nobody chose out of the address. */

export function shortenAddresses(root: Document): void {
  for (const form of root.querySelectorAll<HTMLFormElement>("form.filters")) {
    form.addEventListener("formdata", ({ formData }) => {
      for (const [name, value] of [...formData]) if (value === "") formData.delete(name);
    });
  }
}
